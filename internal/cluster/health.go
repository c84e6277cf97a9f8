package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"mainstay.dev/sdk/api"
)

// healthRise is how far above a level's threshold a worse agent's score must be to reach that level, so that a score at
// the threshold does not flap. A fall counts at once.
const healthRise = 0.02

// Weights of the factors of a health score.
const (
	weightSelfReported = 0.2
	weightHeartbeats   = 0.3
	weightCompletion   = 0.25
	weightResources    = 0.15
	weightErrors       = 0.1
	resourcesFullyGood = 70.0 // per cent in use up to which the resources' factor is 1; it falls to 0 at 100
	heartbeatFullyLate = 3.0  // heartbeat intervals of silence from which on the regularity is 0
	heartbeatStillGood = 1.5  // heartbeat intervals of silence up to which it is 1
	scorePrecision     = 1000 // scores are rounded to this fraction, so that equal facts print alike
	checkWarn          = 80.0 // per cent in use
	checkFail          = 95.0
	// fewestAttempts is how many attempts must have ended before the share of those that ended badly says anything.
	fewestAttempts = 10
)

// HealthFacts are the facts behind a health score. Counts are those of a rolling window.
type HealthFacts struct {
	// SelfReported is the agent's own report, 0 to 1; nil: none, which counts as 1. SelfNote is its reason.
	SelfReported *float64
	SelfNote     string
	// Heartbeats were expected; Late of them did not come in time.
	Heartbeats, Late int
	// Silence is the time since the last heartbeat, Interval the expected time between two.
	Silence, Interval time.Duration
	// Completed and Failed attempts were finished by the agent; Unfinished ones timed out, missed their beacons or were
	// handed back.
	Completed, Failed, Unfinished int
	// Stuck attempts do not stop although the agent was commanded to stop them, each in one of its Slots (0: unknown).
	Stuck, Slots int
	// CPUPercent, MemoryPercent and DiskPercent are the used parts; nil: unknown, which costs nothing.
	CPUPercent, MemoryPercent, DiskPercent *float64
}

// Health is an agent's health with its factors and checks.
type Health struct {
	Level api.HealthLevel `json:"level"`
	Score float64         `json:"score"`
	// Why names the problems in words, worst first; empty: none.
	Why string `json:"why,omitempty"`
	// Busy: everything that keeps it from being healthy is no fault of its own; see HealthFacts.Own.
	Busy    bool               `json:"busy,omitempty"`
	Factors []api.HealthFactor `json:"factors"`
	Checks  []api.HealthCheck  `json:"checks"`
	// ConsecutiveFailures counts the attempts since the last one that completed: failed or not finished.
	ConsecutiveFailures int `json:"consecutive_failures,omitempty"`
	// Finished is the share of the attempts that the agent finished, of however few; 1 without any.
	Finished float64 `json:"-"`
}

// MeasuredAt sets the times of the checks: those of the machine are as old as the agent's last heartbeat.
func (h *Health) MeasuredAt(heartbeat, now time.Time) {
	for i := range h.Checks {
		h.Checks[i].LastCheck = heartbeat.UTC()
		if h.Checks[i].Name == "agent" {
			h.Checks[i].LastCheck = now.UTC()
		}
	}
}

// MemberHealth is a cluster's record of a member's health: its level, and the facts when it reached that.
type MemberHealth struct {
	Level api.HealthLevel `json:"level"`
	Score float64         `json:"score"`
	Why   string          `json:"why,omitempty"`
	Since time.Time       `json:"since"`
}

// Fit reports whether the agent is well. One that is only busy is, and its hub does not report that.
func (h *MemberHealth) Fit() bool { return h == nil || h.Level == api.HealthHealthy }

// Own are the facts that are evidence against the agent itself: without the CPU and memory of its host, which others
// use too, and without failures that handlers reported, which are their own.
func (f HealthFacts) Own() HealthFacts {
	f.CPUPercent, f.MemoryPercent = nil, nil
	f.Completed, f.Failed = f.Completed+f.Failed, 0 // it did finish them
	return f
}

// AssessHealth rates an agent by its facts: the weighted mean of five factors. before is its previous level, or "" for
// none; a better level needs a little more than its threshold. Whatever the score, an agent that lives but does not
// work is critical, and one with a handler that does not stop is degraded at best: its heartbeats and host may be fine.
func AssessHealth(f HealthFacts, before api.HealthLevel) Health {
	h := Health{Factors: []api.HealthFactor{f.selfReported(), f.heartbeats(), f.completion(), f.resources(),
		f.errors()},
		Checks: f.checks()}
	for i := range h.Factors {
		h.Factors[i].Score = rounded(h.Factors[i].Score)
		h.Score += h.Factors[i].Score * h.Factors[i].Weight
	}
	h.Score = rounded(h.Score)
	h.Level = levelOf(h.Score, before)
	if limit := f.worksAtMost(); limit.WorseThan(h.Level) {
		h.Level = limit
	}
	h.Why = whyOf(&h)
	h.Finished = 1
	if finished := f.Completed + f.Failed; finished+f.bad() > 0 {
		h.Finished = float64(finished) / float64(finished+f.bad())
	}
	return h
}

// bad counts the attempts that were not finished: those whose handlers are stuck ended as such, or were cancelled.
func (f *HealthFacts) bad() int { return max(f.Unfinished, f.Stuck) }

// worksAtMost is the best level that an agent's work allows.
func (f *HealthFacts) worksAtMost() api.HealthLevel {
	switch {
	case f.idleHands(), f.Stuck > 0 && f.Stuck >= f.Slots && f.Slots > 0:
		return api.HealthCritical
	case f.Stuck > 0:
		return api.HealthDegraded
	}
	return api.HealthHealthy
}

// idleHands reports whether the agent takes work and finishes none.
func (f *HealthFacts) idleHands() bool {
	return f.Completed+f.Failed == 0 && f.Unfinished >= fewestAttempts
}

// whyOf names the problems of an agent that is not healthy: failed checks, then the factors that cost most.
func whyOf(h *Health) string {
	if h.Level == api.HealthHealthy {
		return ""
	}
	var reasons []string
	for _, c := range h.Checks {
		if c.Name == "agent" && c.Status != api.CheckPass {
			reasons = append(reasons, c.Why)
		}
	}
	factors := slices.Clone(h.Factors)
	slices.SortStableFunc(factors, func(a, b api.HealthFactor) int {
		return cmp.Compare((1-b.Score)*b.Weight, (1-a.Score)*a.Weight)
	})
	for _, f := range factors {
		if f.Score < 1 && !slices.Contains(reasons, f.Why) {
			reasons = append(reasons, f.Why)
		}
	}
	return strings.Join(reasons, "; ")
}

// lowestScores are the lowest scores of the levels, in their order.
var lowestScores = []float64{0.9, 0.7, 0.5, 0.3, 0}

func levelOf(score float64, before api.HealthLevel) api.HealthLevel {
	level, rank := api.HealthFailed, len(api.HealthLevels)
	was := slices.Index(api.HealthLevels, before)
	for i, lowest := range lowestScores {
		if score >= lowest && i < rank {
			level, rank = api.HealthLevels[i], i
		}
	}
	if was > rank && score < lowestScores[rank]+healthRise {
		return api.HealthLevels[min(rank+1, was)]
	}
	return level
}

func (f *HealthFacts) selfReported() api.HealthFactor {
	factor := api.HealthFactor{Name: "self_reported", Score: 1, Weight: weightSelfReported,
		Why: "the agent reports no trouble"}
	if f.SelfReported != nil {
		factor.Score = clamp(*f.SelfReported)
		if factor.Score < 1 {
			factor.Why = fmt.Sprintf("the agent rates itself %.2f", factor.Score)
			if f.SelfNote != "" {
				factor.Why += ": " + f.SelfNote
			}
		}
	}
	return factor
}

func (f *HealthFacts) heartbeats() api.HealthFactor {
	factor := api.HealthFactor{Name: "heartbeat_regularity", Score: 1, Weight: weightHeartbeats,
		Why: "its heartbeats come in time"}
	if f.Heartbeats > 0 && f.Late > 0 {
		factor.Score = clamp(1 - float64(f.Late)/float64(f.Heartbeats))
		factor.Why = fmt.Sprintf("%d of %d heartbeats came late", f.Late, f.Heartbeats)
	}
	if f.Interval <= 0 {
		return factor
	}
	silent := float64(f.Silence) / float64(f.Interval)
	if now := clamp((heartbeatFullyLate - silent) / (heartbeatFullyLate - heartbeatStillGood)); now < factor.Score {
		factor.Score, factor.Why = now, fmt.Sprintf("silent for %s, %s is expected", f.Silence.Round(time.Second),
			f.Interval)
	}
	return factor
}

func (f *HealthFacts) completion() api.HealthFactor {
	factor := api.HealthFactor{Name: "task_completion", Score: 1, Weight: weightCompletion, Why: "it finishes what it takes"}
	bad := f.bad()
	if bad == 0 {
		return factor
	}
	all := f.Completed + f.Failed + bad
	if f.Stuck == 0 && all < fewestAttempts {
		factor.Why = fmt.Sprintf("%d of %d attempts were not finished: too few to say anything", bad, all)
		return factor
	}
	factor.Score = float64(all-bad) / float64(all)
	factor.Why = fmt.Sprintf("%d of %d attempts were not finished", bad, all)
	if f.Stuck > 0 {
		factor.Why += fmt.Sprintf(", %d of them run on although they were told to stop", f.Stuck)
	}
	return factor
}

func (f *HealthFacts) resources() api.HealthFactor {
	factor := api.HealthFactor{Name: "resource_utilization", Score: 1, Weight: weightResources}
	var spare []string
	for _, r := range f.inUse() {
		if r.percent == nil {
			continue
		}
		spare = append(spare, r.name)
		if score := clamp((100 - *r.percent) / (100 - resourcesFullyGood)); score < factor.Score {
			factor.Score, factor.Why = score, fmt.Sprintf("%s is %.0f%% in use", r.name, *r.percent)
		}
	}
	if factor.Why == "" {
		factor.Why = "its cpu, memory and disk are not reported"
		if len(spare) > 0 {
			factor.Why = "it has to spare: " + strings.Join(spare, ", ")
		}
	}
	return factor
}

func (f *HealthFacts) errors() api.HealthFactor {
	factor := api.HealthFactor{Name: "error_rate", Score: 1, Weight: weightErrors, Why: "its attempts do not fail"}
	if f.Failed == 0 {
		return factor
	}
	all := f.Completed + f.Failed
	factor.Why = fmt.Sprintf("%d of %d finished attempts failed", f.Failed, all)
	if all < fewestAttempts {
		factor.Why += ": too few to say anything"
		return factor
	}
	factor.Score = float64(f.Completed) / float64(all)
	return factor
}

func (f *HealthFacts) checks() []api.HealthCheck {
	var checks []api.HealthCheck
	for _, r := range f.inUse() {
		check := api.HealthCheck{Name: r.name, Status: api.CheckUnknown, Why: "not reported"}
		if r.percent != nil {
			check.Status, check.Why = api.CheckPass, fmt.Sprintf("%.0f%% in use%s", *r.percent, r.over)
			switch {
			case *r.percent >= checkFail:
				check.Status = api.CheckFail
			case *r.percent >= checkWarn:
				check.Status = api.CheckWarn
			}
		}
		checks = append(checks, check)
	}
	agent := api.HealthCheck{Name: "agent", Status: api.CheckPass, Why: "it answers and works"}
	switch {
	case f.Stuck > 0:
		agent.Status, agent.Why = api.CheckFail, fmt.Sprintf("%d attempts run on although they were told to stop", f.Stuck)
	case f.idleHands():
		agent.Status, agent.Why = api.CheckFail, fmt.Sprintf("it took %d attempts and finished none", f.Unfinished)
	case f.Interval > 0 && f.Silence > time.Duration(heartbeatStillGood*float64(f.Interval)):
		agent.Status, agent.Why = api.CheckWarn, fmt.Sprintf("silent for %s", f.Silence.Round(time.Second))
	case f.Completed+f.Failed == 0 && f.Unfinished > 0:
		agent.Status, agent.Why = api.CheckWarn, fmt.Sprintf("it took %d attempts and finished none yet", f.Unfinished)
	}
	return append(checks, agent)
}

type resourceUse struct {
	name    string
	percent *float64
	over    string // the time that it is the mean of, in words
}

func (f *HealthFacts) inUse() []resourceUse {
	mean := fmt.Sprintf(", the mean of %.0f minutes", HealthWindowLength.Minutes())
	return []resourceUse{{"cpu", f.CPUPercent, mean}, {"memory", f.MemoryPercent, mean}, {"disk", f.DiskPercent, ""}}
}

func clamp(x float64) float64 { return min(max(x, 0), 1) }

func rounded(x float64) float64 { return float64(int(x*scorePrecision+0.5)) / scorePrecision }

// The rolling window of an agent's health.
const (
	// HealthWindowLength is how far back a score looks.
	HealthWindowLength = 5 * time.Minute
	healthBuckets      = 10
	healthBucket       = HealthWindowLength / healthBuckets
)

// HealthWindow counts what an agent did within the last minutes. The zero value is ready. It is not safe for concurrent
// use.
type HealthWindow struct {
	buckets [healthBuckets]healthCounts
	newest  int64 // number of the newest bucket: time divided by its length
}

type healthCounts struct {
	heartbeats, late, completed, failed, unfinished int
	cpu, memory                                     samples
}

// samples are the number and the sum of shares in per cent.
type samples struct {
	n   int
	sum float64
}

func (s *samples) add(percent *float64) {
	if percent != nil {
		s.n++
		s.sum += *percent
	}
}

// Sampled records the used part of its host's CPU and memory, if known. These vary, so their mean counts.
func (w *HealthWindow) Sampled(cpu, memory *float64, now time.Time) {
	b := w.at(now)
	b.cpu.add(cpu)
	b.memory.add(memory)
}

// Heartbeat counts one heartbeat that came gap after the previous one; interval is the expected gap.
func (w *HealthWindow) Heartbeat(gap, interval time.Duration, now time.Time) {
	b := w.at(now)
	b.heartbeats++
	if float64(gap) > heartbeatStillGood*float64(interval) {
		b.late++
	}
}

// Ended counts one attempt that the agent was given, by how it ended. Leave out attempts that were cancelled, or taken
// off it by a person or a drain.
func (w *HealthWindow) Ended(outcome api.AttemptOutcome, now time.Time) {
	b := w.at(now)
	switch outcome {
	case api.AttemptCompleted:
		b.completed++
	case api.AttemptFailed:
		b.failed++
	case api.AttemptTimedOut, api.AttemptReturned:
		b.unfinished++
	}
}

// Facts adds the window's counts to f. Without a sample, f keeps its CPU and memory.
func (w *HealthWindow) Facts(f HealthFacts, now time.Time) HealthFacts {
	w.at(now)
	f.Heartbeats, f.Late, f.Completed, f.Failed, f.Unfinished = 0, 0, 0, 0, 0
	var cpu, memory samples
	for _, b := range w.buckets {
		cpu.n, cpu.sum = cpu.n+b.cpu.n, cpu.sum+b.cpu.sum
		memory.n, memory.sum = memory.n+b.memory.n, memory.sum+b.memory.sum
		f.Heartbeats += b.heartbeats
		f.Late += b.late
		f.Completed += b.completed
		f.Failed += b.failed
		f.Unfinished += b.unfinished
	}
	if cpu.n > 0 {
		f.CPUPercent = new(cpu.sum / float64(cpu.n))
	}
	if memory.n > 0 {
		f.MemoryPercent = new(memory.sum / float64(memory.n))
	}
	return f
}

// at returns the bucket of a time, and empties outdated buckets. A time before the newest bucket counts as that
// bucket's.
func (w *HealthWindow) at(now time.Time) *healthCounts {
	number := now.UnixNano() / int64(healthBucket)
	switch steps := number - w.newest; {
	case w.newest == 0 || steps >= healthBuckets:
		w.buckets = [healthBuckets]healthCounts{}
		w.newest = number
	case steps > 0:
		for range steps {
			w.newest++
			w.buckets[w.newest%healthBuckets] = healthCounts{}
		}
	}
	return &w.buckets[w.newest%healthBuckets]
}

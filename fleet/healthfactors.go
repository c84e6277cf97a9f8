package fleet

import (
	"fmt"
	"time"
)

func (f *HealthFacts) selfReported() HealthFactor {
	factor := HealthFactor{Name: "self_reported", Score: 1, Weight: weightSelfReported,
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

func (f *HealthFacts) heartbeats() HealthFactor {
	factor := HealthFactor{Name: "heartbeat_regularity", Score: 1, Weight: weightHeartbeats,
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

func (f *HealthFacts) completion() HealthFactor {
	factor := HealthFactor{Name: FactorCompletion, Score: 1, Weight: weightCompletion, Why: "it finishes what it takes"}
	bad := max(f.Unfinished, f.Stuck) // what does not stop was ended as unfinished, or was cancelled
	if bad == 0 {
		return factor
	}
	all := f.Completed + f.Failed + bad
	if f.Stuck == 0 && bad < fewestUnfinished {
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

func (f *HealthFacts) resources() HealthFactor {
	factor := HealthFactor{Name: "resource_utilization", Score: 1, Weight: weightResources,
		Why: "it has cpu, memory and disk to spare"}
	for _, r := range f.inUse() {
		if r.percent == nil {
			continue
		}
		if score := clamp((100 - *r.percent) / (100 - resourcesFullyGood)); score < factor.Score {
			factor.Score, factor.Why = score, fmt.Sprintf("%s is %.0f%% in use", r.name, *r.percent)
		}
	}
	return factor
}

func (f *HealthFacts) errors() HealthFactor {
	factor := HealthFactor{Name: "error_rate", Score: 1, Weight: weightErrors, Why: "its attempts do not fail"}
	if f.Failed > 0 {
		all := f.Completed + f.Failed
		factor.Score = float64(f.Completed) / float64(all)
		factor.Why = fmt.Sprintf("%d of %d finished attempts failed", f.Failed, all)
	}
	return factor
}

func (f *HealthFacts) checks() []HealthCheck {
	var checks []HealthCheck
	for _, r := range f.inUse() {
		check := HealthCheck{Name: r.name, Status: CheckPass, Why: "not reported"}
		if r.percent != nil {
			check.Why = fmt.Sprintf("%.0f%% in use", *r.percent)
			switch {
			case *r.percent >= checkFail:
				check.Status = CheckFail
			case *r.percent >= checkWarn:
				check.Status = CheckWarn
			}
		}
		checks = append(checks, check)
	}
	agent := HealthCheck{Name: "agent", Status: CheckPass, Why: "it answers and works"}
	switch {
	case f.Stuck > 0:
		agent.Status, agent.Why = CheckFail, fmt.Sprintf("%d attempts run on although they were told to stop", f.Stuck)
	case f.idleHands():
		agent.Status, agent.Why = CheckFail, fmt.Sprintf("it took %d attempts and finished none", f.Unfinished)
	case f.Interval > 0 && f.Silence > time.Duration(heartbeatStillGood*float64(f.Interval)):
		agent.Status, agent.Why = CheckWarn, fmt.Sprintf("silent for %s", f.Silence.Round(time.Second))
	case f.Completed+f.Failed == 0 && f.Unfinished > 0:
		agent.Status, agent.Why = CheckWarn, fmt.Sprintf("it took %d attempts and finished none yet", f.Unfinished)
	}
	return append(checks, agent)
}

type resourceUse struct {
	name    string
	percent *float64
}

func (f *HealthFacts) inUse() []resourceUse {
	return []resourceUse{{"cpu", f.CPUPercent}, {"memory", f.MemoryPercent}, {"disk", f.DiskPercent}}
}

func clamp(x float64) float64 { return min(max(x, 0), 1) }

func rounded(x float64) float64 { return float64(int(x*scorePrecision+0.5)) / scorePrecision }

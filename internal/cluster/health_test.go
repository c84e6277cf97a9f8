package cluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mainstay.dev/sdk/api"
)

// A check says over which time what it tells is the mean.
func TestChecksNameTheirTime(t *testing.T) {
	t.Parallel()
	used := 85.0
	why := map[string]string{}
	for _, c := range AssessHealth(HealthFacts{CPUPercent: &used, DiskPercent: &used}, "").Checks {
		why[c.Name] = c.Why
	}
	require.Equal(t, "85% in use, the mean of 5 minutes", why["cpu"])
	require.Equal(t, "85% in use", why["disk"])
}

// What is not reported is unknown, and costs nothing.
func TestUnknownUse(t *testing.T) {
	t.Parallel()
	for _, f := range []HealthFacts{{}, {MemoryPercent: new(0.)}} {
		h := AssessHealth(f, "")
		require.InDelta(t, 1, h.Score, 0)
		for _, c := range h.Checks {
			switch {
			case c.Name == "memory" && f.MemoryPercent != nil:
				require.Equal(t, api.HealthCheck{Name: "memory", Status: api.CheckPass, Why: "0% in use, the mean of 5 minutes"}, c)
			case c.Name != "agent":
				require.Equal(t, api.HealthCheck{Name: c.Name, Status: api.CheckUnknown, Why: "not reported"}, c)
			}
		}
	}
	var w HealthWindow
	w.Sampled(nil, new(40.), noon)
	w.Sampled(new(30.), new(60.), noon)
	w.Sampled(nil, nil, noon)
	got := w.Facts(HealthFacts{}, noon)
	require.Equal(t, []float64{30, 50}, []float64{*got.CPUPercent, *got.MemoryPercent})
}

func TestAssessHealth(t *testing.T) {
	t.Parallel()
	p := func(x float64) *float64 { return &x }
	tests := []struct {
		name   string
		facts  HealthFacts
		before api.HealthLevel
		score  float64
		level  api.HealthLevel
	}{
		{"nothing known is healthy", HealthFacts{}, "", 1, api.HealthHealthy},
		{"a good agent", HealthFacts{SelfReported: p(1), Heartbeats: 60, Interval: 5 * time.Second,
			Silence: 5 * time.Second, Completed: 40, CPUPercent: p(60)}, "", 1, api.HealthHealthy},
		{"half of its attempts fail", HealthFacts{Completed: 5, Failed: 5}, "", 0.95, api.HealthHealthy},
		{"one of one failed", HealthFacts{Failed: 1}, "", 1, api.HealthHealthy},
		{"nine of nine failed", HealthFacts{Failed: 9}, "", 1, api.HealthHealthy},
		{"ten of ten failed", HealthFacts{Failed: 10}, "", 0.9, api.HealthHealthy},
		{"it finishes half of what it takes", HealthFacts{Completed: 5, Unfinished: 5}, "", 0.875, api.HealthDegraded},
		{"it takes work and finishes none", HealthFacts{Unfinished: 10}, "", 0.75, api.HealthCritical},
		{"nine attempts that were not finished say little", HealthFacts{Unfinished: 9}, "", 1, api.HealthHealthy},
		{"one of its handlers hangs", HealthFacts{Completed: 99, Stuck: 1, Slots: 4}, "", 0.998, api.HealthDegraded},
		{"all of its handlers hang", HealthFacts{Completed: 99, Stuck: 1, Slots: 1}, "", 0.998, api.HealthCritical},
		{"its handlers hang, and it says so", HealthFacts{Completed: 1, Unfinished: 5, Stuck: 2, SelfReported: p(0)},
			"", 0.592, api.HealthWarning},
		{"it rates itself as failed", HealthFacts{SelfReported: p(0), SelfNote: "no licence"}, "", 0.8, api.HealthDegraded},
		{"it works again", HealthFacts{Completed: 1}, api.HealthCritical, 1, api.HealthHealthy},
		{"silent for two intervals", HealthFacts{Interval: 5 * time.Second, Silence: 10 * time.Second}, "", 0.9,
			api.HealthHealthy},
		{"silent for three", HealthFacts{Interval: 5 * time.Second, Silence: 15 * time.Second}, "", 0.7,
			api.HealthDegraded},
		{"a full disk", HealthFacts{DiskPercent: p(100)}, "", 0.85, api.HealthDegraded},
		{"silent, full, failing", HealthFacts{Interval: time.Second, Silence: time.Hour, CPUPercent: p(100), Failed: 10},
			"", 0.45, api.HealthCritical},
		{"everything is wrong", HealthFacts{Interval: time.Second, Silence: time.Hour, CPUPercent: p(100), Failed: 10,
			Unfinished: 990, SelfReported: p(-3)}, "", 0.003, api.HealthFailed},
		{"at the threshold it stays what it was", HealthFacts{Interval: 5 * time.Second, Silence: 10 * time.Second},
			api.HealthDegraded, 0.9, api.HealthDegraded},
		{"well above it rises", HealthFacts{Completed: 6, Failed: 4}, api.HealthDegraded, 0.96, api.HealthHealthy},
		{"it rises over several levels, and waits below the threshold",
			HealthFacts{Interval: 5 * time.Second, Silence: 10 * time.Second}, api.HealthFailed, 0.9, api.HealthDegraded},
		{"it falls at once", HealthFacts{Completed: 5, Unfinished: 5}, api.HealthHealthy, 0.875, api.HealthDegraded},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := AssessHealth(tt.facts, tt.before)
			require.InDelta(t, tt.score, got.Score, 0.0011, "%+v", got)
			require.Equal(t, tt.level, got.Level)
			require.Equal(t, got.Level == api.HealthHealthy, got.Why == "", "%s: %q", got.Level, got.Why)
			require.Len(t, got.Factors, 5)
			weights := 0.0
			for _, f := range got.Factors {
				weights += f.Weight
				require.NotEmpty(t, f.Why)
			}
			require.InDelta(t, 1, weights, 1e-9)
		})
	}
}

// What is no fault of the agent's takes nothing from its own health, whatever it was before.
func TestOwnHealthIsTheAgentsAlone(t *testing.T) {
	t.Parallel()
	full := 100.0
	for name, f := range map[string]HealthFacts{
		"its host is busy":       {CPUPercent: &full, MemoryPercent: &full},
		"its handlers fail":      {Failed: 1000},
		"both":                   {CPUPercent: &full, Failed: 1000},
		"both, and some succeed": {CPUPercent: &full, Failed: 1000, Completed: 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, before := range []api.HealthLevel{"", api.HealthDegraded, api.HealthCritical} {
				require.Equal(t, 1.0, AssessHealth(f.Own(), before).Score) //nolint:testifylint // nothing is taken
			}
		})
	}
	own := HealthFacts{Failed: 5, Unfinished: 5}.Own()
	require.Equal(t, api.HealthDegraded, AssessHealth(own, "").Level, "it finishes half of what it takes")
	require.Equal(t, api.HealthDegraded, AssessHealth(HealthFacts{DiskPercent: &full}.Own(), "").Level)
}

// No fact that is worse makes an agent healthier, and a score and its level agree but for the hysteresis.
func TestHealthIsMonotone(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		percent := func(name string) *float64 { x := rapid.Float64Range(0, 100).Draw(t, name); return &x }
		count := rapid.IntRange(0, 50)
		f := HealthFacts{SelfReported: new(float64), Heartbeats: 100, Late: count.Draw(t, "late"),
			Interval:   5 * time.Second,
			Silence:    time.Duration(rapid.IntRange(0, 30).Draw(t, "silence")) * time.Second,
			Completed:  count.Draw(t, "completed"),
			Failed:     count.Draw(t, "failed"),
			Unfinished: count.Draw(t, "unfinished"), Stuck: rapid.IntRange(0, 3).Draw(t, "stuck"),
			CPUPercent: percent("cpu"), MemoryPercent: percent("memory"), DiskPercent: percent("disk")}
		worse := f
		switch rapid.IntRange(0, 6).Draw(t, "worse") {
		case 0:
			worse.Late++
		case 1:
			worse.Silence += time.Second
		case 2:
			worse.Unfinished++
		case 3:
			worse.Stuck++
		case 4:
			x := min(100, *f.CPUPercent+5)
			worse.CPUPercent = &x
		case 5:
			x := min(100, *f.DiskPercent+5)
			worse.DiskPercent = &x
		case 6:
			worse.Completed = max(0, f.Completed-1)
			worse.Failed = f.Failed + f.Completed - worse.Completed
		}
		good, bad := AssessHealth(f, ""), AssessHealth(worse, "")
		if bad.Score > good.Score+1e-9 {
			t.Fatalf("%+v scores %.3f, worse %+v scores %.3f", f, good.Score, worse, bad.Score)
		}
		if good.Score < 0 || good.Score > 1 {
			t.Fatalf("score %f", good.Score)
		}
	})
}

func TestHealthWindow(t *testing.T) {
	t.Parallel()
	var w HealthWindow
	w.Heartbeat(5*time.Second, 5*time.Second, noon)
	w.Heartbeat(8*time.Second, 5*time.Second, noon)
	for _, outcome := range []api.AttemptOutcome{api.AttemptCompleted, api.AttemptCompleted, api.AttemptFailed, api.AttemptTimedOut,
		api.AttemptReturned, api.AttemptCancelled, api.AttemptLost} {
		w.Ended(outcome, noon.Add(time.Minute))
	}
	all := HealthFacts{Heartbeats: 2, Late: 1, Completed: 2, Failed: 1, Unfinished: 2}
	require.Equal(t, all, w.Facts(HealthFacts{}, noon.Add(2*time.Minute)))
	require.Equal(t, all, w.Facts(HealthFacts{}, noon), "a clock that is set back forgets nothing")
	require.Equal(t, HealthFacts{Completed: 2, Failed: 1, Unfinished: 2},
		w.Facts(HealthFacts{}, noon.Add(HealthWindowLength+20*time.Second)))
	require.Equal(t, HealthFacts{Stuck: 1}, w.Facts(HealthFacts{Stuck: 1}, noon.Add(time.Hour)))
}

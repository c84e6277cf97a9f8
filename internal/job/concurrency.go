package job

import (
	"fmt"
	"slices"

	"mainstay.dev/sdk/api"
)

// maxHoldings bounds the runs of a job that go or wait: a job carries them all.
const maxHoldings = 1000

// Admission says that a run may begin, or that it is not started, and why.
type Admission struct {
	Skip bool   `json:"skip,omitempty"`
	Why  string `json:"why,omitempty"`
	// Cancel: the run is to end, because another takes its place.
	Cancel bool `json:"cancel,omitempty"`
}

// Verdict is what a job answers a run.
type Verdict struct {
	Run string
	Admission
}

// Begin decides whether one more run may begin, by the definition in force. It returns the answers for runs. A run that
// asks again gets the same answer.
func (j *Job) Begin(run, key string) []Verdict {
	if i := j.holding(run); i >= 0 {
		if j.Active[i].Waiting {
			return nil
		}
		return []Verdict{{Run: run}}
	}
	bound, then := j.bound()
	if bound == 0 {
		return []Verdict{{Run: run}}
	}
	if len(j.Active) >= maxHoldings {
		return []Verdict{
			{run, Admission{Skip: true, Why: fmt.Sprintf("%d runs of the job go or wait already", maxHoldings)}},
		}
	}
	going, first := 0, -1
	for i := range j.Active {
		if h := &j.Active[i]; h.Key == key && !h.Cancelled {
			if going++; first < 0 {
				first = i
			}
		}
	}
	switch {
	case going < bound || then == api.ThenQueue || then == "":
	case then == api.ThenSkip:
		return []Verdict{{run, Admission{Skip: true,
			Why: fmt.Sprintf("%d of at most %d runs go already, and the job's concurrency says skip", going, bound)}}}
	default:
		j.Active[first].Cancelled = true
		j.Active = append(j.Active, api.ActiveRun{Run: run, Key: key, Waiting: true})
		return []Verdict{{j.Active[first].Run, Admission{Cancel: true, Why: "run " + run + " takes its place"}}}
	}
	j.Active = append(j.Active, api.ActiveRun{Run: run, Key: key, Waiting: true})
	return j.Admit()
}

// End frees what runs held, and admits those that waited for it.
func (j *Job) End(runs ...string) []Verdict {
	j.Active = slices.DeleteFunc(j.Active, func(h api.ActiveRun) bool { return slices.Contains(runs, h.Run) })
	return j.Admit()
}

// Admit admits the runs that wait and for which there is room, the oldest first.
func (j *Job) Admit() (admitted []Verdict) {
	bound, _ := j.bound()
	going := map[string]int{}
	for i := range j.Active {
		if h := &j.Active[i]; !h.Waiting {
			going[h.Key]++
		}
	}
	for i := range j.Active {
		if h := &j.Active[i]; h.Waiting && !h.Cancelled && (bound == 0 || going[h.Key] < bound) {
			h.Waiting = false
			going[h.Key]++
			admitted = append(admitted, Verdict{Run: h.Run})
		}
	}
	return admitted
}

// Waits reports whether a run waits for another's end.
func (j *Job) Waits() bool {
	return slices.ContainsFunc(j.Active, func(h api.ActiveRun) bool { return h.Waiting })
}

// Holders are all runs that go or wait.
func (j *Job) Holders() []string {
	runs := make([]string, len(j.Active))
	for i := range j.Active {
		runs[i] = j.Active[i].Run
	}
	return runs
}

func (j *Job) holding(run string) int {
	return slices.IndexFunc(j.Active, func(h api.ActiveRun) bool { return h.Run == run })
}

// bound is how many runs of one key go at a time; 0: any number.
func (j *Job) bound() (int, api.Then) {
	d := j.Definition()
	if d == nil || d.Concurrency == nil {
		return 0, ""
	}
	return max(d.Concurrency.MaxRuns, 1), d.Concurrency.Then
}

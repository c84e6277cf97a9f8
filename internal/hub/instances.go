package hub

import (
	"context"
	"time"

	"go.uber.org/zap"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/limit"
	"mainstay.dev/mainstay/internal/parallel"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
)

const (
	// tellAgain is how long the hub waits after a failed report to a job about its instances.
	tellAgain = time.Second
	// tellRate is how many reports a job gets each second, in the long run; tellBurst at once.
	tellRate, tellBurst = 2, 50
	// endedLength bounds how much of an attempt's failure a job gets, in bytes.
	endedLength = 256
	// tellAtOnce bounds the jobs that get reports side by side.
	tellAtOnce = 16
	// tellTimeout bounds one signal.
	tellTimeout = 10 * time.Second
)

// healthTeller reports to jobs the health of their instances, whenever that changes. The hub's mutex guards it.
type healthTeller struct {
	known   map[string]*knownHealth // by task
	round   int64                   // counts the looks at all attempts
	telling bool
	again   time.Time   // no report before then
	rate    *limit.Rate // by job: each word is a signal, and checks may flap
}

// knownHealth is what the hub last saw of an instance, and what it has reported to the instance's job.
type knownHealth struct {
	job       string
	now, told contract.HealthReport
	ended     string // how the newest attempt that is over ended
	round     int64
}

// end takes in how an instance's attempt ended.
func (t *healthTeller) end(hub string, a *attempt, why string) {
	if a.JobInstance == nil {
		return
	}
	k := t.known[a.Task]
	if k == nil { // it ended before anybody looked
		k = &knownHealth{job: a.JobInstance.Job, round: t.round - 1,
			now: contract.HealthReport{Task: a.Task, Attempt: a.Attempt, Hub: hub}}
		t.known[a.Task] = k
	}
	k.ended = api.Shorten(why, endedLength)
}

// see takes in how well an instance is now.
func (t *healthTeller) see(hub string, a *attempt, now time.Time) {
	k := t.known[a.Task]
	if k == nil {
		k = &knownHealth{job: a.JobInstance.Job}
		t.known[a.Task] = k
	}
	k.round, k.ended = t.round, ""
	k.now = contract.HealthReport{Task: a.Task, Attempt: a.Attempt, Health: a.healthNow(), Changes: a.healthChanges,
		Turns: a.healthTurns, Hub: hub, Leaving: now.Before(a.session.leaving.drainedUntil)}
}

// tell ends a look at all attempts: instances that were not seen are gone, and jobs get reports of what is new.
func (t *healthTeller) tell(h *Hub, now time.Time) {
	round := t.round
	t.round++
	if t.telling || now.Before(t.again) {
		return
	}
	news := map[string][]contract.HealthReport{}
	for task, k := range t.known {
		if k.round != round {
			k.now.Health, k.now.Why = "", k.ended
		}
		switch {
		case k.now != k.told:
			news[k.job] = append(news[k.job], k.now)
		case k.round != round:
			delete(t.known, task)
		}
	}
	for name := range news {
		if t.rate.Take(name, 1, now) > 0 {
			delete(news, name) // their reports come later, with the health of then
		}
	}
	if len(news) == 0 {
		return
	}
	t.telling = true
	h.wg.Go(func() { h.tellJobs(news) })
}

func (h *Hub) tellJobs(news map[string][]contract.HealthReport) {
	jobs := make([]string, 0, len(news))
	for name := range news {
		jobs = append(jobs, name)
	}
	errs := make([]error, len(jobs))
	parallel.Each(len(jobs), tellAtOnce, func(i int) {
		ctx, cancel := context.WithTimeout(h.run, tellTimeout)
		defer cancel()
		errs[i] = store.Signal(ctx, h.store.Store, contract.InstancesHealthSignal,
			contract.JobWorkflowID(jobs[i]), news[jobs[i]])
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	h.instances.telling = false
	for i, name := range jobs {
		if errs[i] != nil && store.KindOf(errs[i]) != store.NotFound { // a job that was deleted needs no word
			h.instances.again = time.Now().Add(tellAgain)
			h.log.Warn("A job was not told of its instances' health; trying again", zap.String("job", name),
				zap.Error(errs[i]))
			continue
		}
		for _, report := range news[name] {
			if k := h.instances.known[report.Task]; k != nil {
				k.told = report
			}
		}
	}
}

// healthNow is how well an instance is, by its agent's last word. One whose agent is out of touch, or that is being
// stopped, does not pass.
func (a *attempt) healthNow() api.InstanceHealth {
	switch {
	case a.session.link.closed() || a.cancelling || a.session.leaving.stopping:
		return api.InstanceFailing
	case a.JobInstance.Health == nil:
		return api.InstancePassing
	case a.health == "":
		return api.InstanceStarting
	}
	return a.health
}

// sealedInstance is the part of an instance that another hub needs when it takes it over, without its checks.
func sealedInstance(i *api.InstanceOf) *api.InstanceOf {
	if i == nil || i.Health == nil {
		return i
	}
	sealed := *i
	sealed.Health = &api.ServiceCheck{}
	return &sealed
}

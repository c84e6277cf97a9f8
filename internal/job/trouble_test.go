package job

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/api"
)

func TestTrouble(t *testing.T) {
	t.Parallel()
	const old, young = -time.Hour, -time.Second
	passing := func(name string) api.Instance {
		return api.Instance{Name: name, Health: api.InstancePassing, Since: noon.Add(old), Attempt: 1}
	}
	for name, c := range map[string]struct {
		kind      api.JobType
		instances []api.Instance
		change    func(j *Job)
		healthy   int
		why       string // empty: no trouble
		since     time.Duration
	}{
		"all pass": {kind: api.JobService, instances: []api.Instance{passing("0"), passing("1")}},
		"one has just been started": {kind: api.JobService,
			instances: []api.Instance{passing("0"), {Name: "1", Since: noon.Add(young)}}},
		"one takes too long": {kind: api.JobService, instances: []api.Instance{passing("0"), {Name: "1", Since: noon.Add(old)}},
			healthy: 1, why: "instance 1 runs on no agent", since: old},
		"one fails its check": {kind: api.JobService, healthy: 1, why: "instance 1 is failing", since: -2 * time.Minute,
			instances: []api.Instance{passing("0"), {Name: "1", Health: api.InstanceFailing, Since: noon.Add(old),
				HealthAt: noon.Add(-2 * time.Minute), Attempt: 1}}},
		"one crashes again and again": {kind: api.JobService, healthy: 1,
			why: "instance 1 is starting, and was started again 4 times",
			instances: []api.Instance{passing("0"), {Name: "1", Health: api.InstanceStarting, Since: noon.Add(old),
				HealthAt: noon, Attempt: 5}}},
		"one has ended": {kind: api.JobService, healthy: 1, why: "instance 1 has ended: exit 3",
			instances: []api.Instance{passing("0"), {Name: "1", Ended: api.TaskFailed, Ends: 1, Why: "exit 3"}}},
		"a person ended one": {kind: api.JobService,
			instances: []api.Instance{passing("0"), {Name: "1", Ended: api.TaskCancelled}}},
		"a deployment waits for one": {kind: api.JobService,
			instances: []api.Instance{passing("0"), {Name: "1", Since: noon.Add(old), Due: noon.Add(time.Minute)}}},
		"its successor passes": {kind: api.JobService, instances: []api.Instance{passing("0"),
			{Name: "1", Since: noon.Add(old), Stopping: "canary"}, passing("1")}},
		"a required service is gone": {kind: api.JobService, instances: []api.Instance{passing("0")},
			change: func(j *Job) { j.Require([]string{"db"}, noon.Add(old)) }, healthy: 1, why: "none of db", since: old},
		"a required service was there a moment ago": {kind: api.JobService,
			change: func(j *Job) { j.Require([]string{"db"}, noon.Add(young)) }},
		"paused":  {kind: api.JobService, change: func(j *Job) { j.Paused = &api.Decision{} }},
		"stopped": {kind: api.JobService, change: func(j *Job) { j.Stopped = &api.Decision{} }},
		"of a system job": {kind: api.JobSystem, healthy: 1, why: "instance b runs on no agent", since: old,
			instances: []api.Instance{passing("a"), {Name: "b", Since: noon.Add(old)}}},
		"of a sysbatch job": {kind: api.JobSysbatch, instances: []api.Instance{{Name: "b", Since: noon.Add(old)}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := &Job{Name: "j"}
			d := withInstances(c.kind, 0)
			if c.kind == api.JobService {
				d.Instances.Count = new(2)
			}
			j.Apply(d, "", noon.Add(old))
			j.Instances = c.instances
			if c.change != nil {
				c.change(j)
			}
			got := j.Trouble(noon)
			if c.why == "" {
				require.Nil(t, got)
				return
			}
			require.NotNil(t, got)
			require.Equal(t, []int{c.healthy, 2}, []int{got.Healthy, got.Wanted})
			require.Contains(t, got.Why, c.why)
			want := time.Time{}
			if c.since != 0 {
				want = noon.Add(c.since)
			}
			require.Equal(t, want, got.Since)
		})
	}
}

// A deployment that failed is told of until another version is in force; one that was reverted, for an hour.
func TestTroubleOfDeployments(t *testing.T) {
	t.Parallel()
	for name, revert := range map[string]bool{"kept": false, "reverted": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRollout(t, api.JobService, 1, api.JobUpdate{})
			require.Nil(t, r.Trouble(r.now))
			r.bad[2] = true
			r.deploy(api.JobService, 1, "2", api.JobUpdate{Revert: revert, HealthyWithin: api.Duration(time.Minute)})
			for r.Deployments[1].Active() {
				r.step()
			}
			got := r.Trouble(r.now)
			require.NotNil(t, got)
			require.Equal(t, 2, got.Failed.Version)
			require.Empty(t, got.Why, "the old instance stays")
			later := r.Trouble(r.now.Add(2 * time.Hour))
			require.Equal(t, revert, later == nil || later.Failed == nil)
		})
	}
}

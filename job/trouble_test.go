package job

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/fleet"
)

func TestTrouble(t *testing.T) {
	t.Parallel()
	const old, young = -time.Hour, -time.Second
	passing := func(name string) Instance {
		return Instance{Name: name, Health: fleet.InstancePassing, Since: noon.Add(old), Attempt: 1}
	}
	for name, c := range map[string]struct {
		kind      Type
		instances []Instance
		change    func(j *Job)
		healthy   int
		why       string // empty: no trouble
		since     time.Duration
	}{
		"all pass": {kind: Service, instances: []Instance{passing("0"), passing("1")}},
		"one has just been started": {kind: Service,
			instances: []Instance{passing("0"), {Name: "1", Since: noon.Add(young)}}},
		"one takes too long": {kind: Service, instances: []Instance{passing("0"), {Name: "1", Since: noon.Add(old)}},
			healthy: 1, why: "instance 1 runs on no agent", since: old},
		"one fails its check": {kind: Service, healthy: 1, why: "instance 1 is failing", since: -2 * time.Minute,
			instances: []Instance{passing("0"), {Name: "1", Health: fleet.InstanceFailing, Since: noon.Add(old),
				HealthAt: noon.Add(-2 * time.Minute), Attempt: 1}}},
		"one crashes again and again": {kind: Service, healthy: 1,
			why: "instance 1 is starting, and was started again 4 times",
			instances: []Instance{passing("0"), {Name: "1", Health: fleet.InstanceStarting, Since: noon.Add(old),
				HealthAt: noon, Attempt: 5}}},
		"one has ended": {kind: Service, healthy: 1, why: "instance 1 has ended: exit 3",
			instances: []Instance{passing("0"), {Name: "1", Ended: fleet.TaskFailed, Ends: 1, Why: "exit 3"}}},
		"a person ended one": {kind: Service,
			instances: []Instance{passing("0"), {Name: "1", Ended: fleet.TaskCancelled}}},
		"a deployment waits for one": {kind: Service,
			instances: []Instance{passing("0"), {Name: "1", Since: noon.Add(old), Due: noon.Add(time.Minute)}}},
		"its successor passes": {kind: Service, instances: []Instance{passing("0"),
			{Name: "1", Since: noon.Add(old), Stopping: "canary"}, passing("1")}},
		"a required service is gone": {kind: Service, instances: []Instance{passing("0")},
			change: func(j *Job) { j.Require([]string{"db"}, noon.Add(old)) }, healthy: 1, why: "none of db", since: old},
		"a required service was there a moment ago": {kind: Service,
			change: func(j *Job) { j.Require([]string{"db"}, noon.Add(young)) }},
		"paused":  {kind: Service, change: func(j *Job) { j.Paused = &Decision{} }},
		"stopped": {kind: Service, change: func(j *Job) { j.Stopped = &Decision{} }},
		"of a system job": {kind: System, healthy: 1, why: "instance b runs on no agent", since: old,
			instances: []Instance{passing("a"), {Name: "b", Since: noon.Add(old)}}},
		"of a sysbatch job": {kind: Sysbatch, instances: []Instance{{Name: "b", Since: noon.Add(old)}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := &Job{Name: "j"}
			d := withInstances(c.kind, 0)
			if c.kind == Service {
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
			r := newRollout(t, Service, 1, Update{})
			require.Nil(t, r.Trouble(r.now))
			r.bad[2] = true
			r.deploy(Service, 1, "2", Update{Revert: revert, HealthyWithin: fleet.Duration(time.Minute)})
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

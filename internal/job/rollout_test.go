package job

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/api"
)

// rollout carries out what is planned: instances that are started pass a second later, unless their version is bad, and
// those that are stopped end a second later.
type rollout struct {
	*keeper
	t      *testing.T
	agents *Agents
	bad    map[int]bool
	story  []string
	least  int // the fewest instances that passed at once since it was set
}

func newRollout(t *testing.T, kind api.JobType, count int, u api.JobUpdate) *rollout {
	t.Helper()
	r := &rollout{t: t, keeper: &keeper{Job: &Job{Name: "j"}, now: noon}, bad: map[int]bool{}}
	if kind == api.JobSystem {
		r.agents = &Agents{}
		for n := range count {
			r.agents.Eligible = append(r.agents.Eligible, string(rune('a'+n)))
		}
	}
	r.deploy(kind, count, "1", u)
	r.until(api.DeploymentSuccessful)
	require.Equal(t, api.VersionSpan{First: 1, Last: 1}, r.Stable)
	r.story, r.least = nil, count
	return r
}

func (r *rollout) deploy(kind api.JobType, count int, payload string, u api.JobUpdate) {
	d := withInstances(kind, 0)
	if kind == api.JobService {
		d.Instances.Count = &count
	}
	d.Instances.Task.Payload, d.Update = []byte(payload), &u
	r.apply(d)
}

func (r *rollout) report(i *api.Instance, health api.InstanceHealth) {
	r.TakeHealth(HealthReport{Task: i.TaskID, Attempt: 1, Health: health, Hub: "h"}, r.now)
}

// step is one second.
func (r *rollout) step() {
	change := r.Plan(r.agents, r.now)
	r.Done(change, nil, r.now)
	for _, i := range change.Stop {
		r.story = append(r.story, fmt.Sprintf("-%s@%d", i.Name, i.Version))
	}
	for _, i := range change.Start {
		r.story = append(r.story, fmt.Sprintf("+%s@%d", i.Name, i.Version))
	}
	passing := 0
	for n := range r.Instances {
		if i := &r.Instances[n]; i.Open() && i.Stopping == "" && i.Health == api.InstancePassing {
			passing++
		}
	}
	r.least = min(r.least, passing)
	r.after(time.Second)
	for _, i := range change.Start {
		if !r.bad[i.Version] {
			r.report(&i, api.InstancePassing)
		}
	}
	for _, i := range change.Stop {
		r.EndInstance(i.TaskID, api.TaskCancelled, "", r.now)
	}
}

// until goes on until the newest deployment has a status.
func (r *rollout) until(status api.DeploymentStatus) *api.Deployment {
	r.t.Helper()
	for range 3000 {
		if last := r.Deployment(); last != nil && last.Status == status {
			return last
		}
		r.step()
	}
	r.t.Fatalf("the deployment is %+v after %s", r.Deployment(), strings.Join(r.story, " "))
	return nil
}

func (r *rollout) steps(n int) {
	for range n {
		r.step()
	}
}

// versions are the instances that run, as "0@1 1@2".
func (r *rollout) versions() string {
	var list []string
	for n := range r.Instances {
		if i := &r.Instances[n]; i.Open() && i.Stopping == "" {
			list = append(list, i.Name+"@"+strconv.Itoa(i.Version))
		}
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

func (r *rollout) told() string {
	story := strings.Join(r.story, " ")
	r.story = nil
	return story
}

var soon = api.JobUpdate{HealthyAfter: api.Duration(2 * time.Second)}

func with(change func(*api.JobUpdate)) api.JobUpdate {
	u := soon
	change(&u)
	return u
}

func TestANewVersionReplacesInstancesOneAfterTheOther(t *testing.T) {
	t.Parallel()
	r := newRollout(t, api.JobService, 3, soon)
	r.deploy(api.JobService, 3, "2", soon)
	done := r.until(api.DeploymentSuccessful)
	require.Equal(t, "+0@2 -0@1 +1@2 -1@1 +2@2 -2@1", r.told())
	require.Equal(t, 3, r.least, "instances that pass are never fewer than wanted")
	require.Equal(t, []api.VersionCount{{Version: 2, Instances: 3, Healthy: 3}}, done.Counts)
	require.Equal(t, api.VersionSpan{First: 2, Last: 2}, r.Stable)

	t.Log("the same, in other ways")
	for name, c := range map[string]struct {
		kind  api.JobType
		u     api.JobUpdate
		story string
		least int
	}{
		"two at a time": {api.JobService, with(func(u *api.JobUpdate) { u.MaxParallel = 2 }),
			"+0@2 +1@2 -0@1 -1@1 +2@2 -2@1", 3},
		"without room": {api.JobService, with(func(u *api.JobUpdate) { u.Order = api.StopFirst }),
			"-0@1 +0@2 -1@1 +1@2 -2@1 +2@2", 2},
		"on each agent": {api.JobSystem, soon, "-a@1 +a@2 -b@1 +b@2 -c@1 +c@2", 2},
		"canaries that promote themselves": {api.JobService, with(func(u *api.JobUpdate) { u.Canary, u.Promote = 1, api.PromoteAuto }),
			"+0@2 -0@1 +1@2 -1@1 +2@2 -2@1", 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRollout(t, c.kind, 3, c.u)
			r.deploy(c.kind, 3, "2", c.u)
			r.until(api.DeploymentSuccessful)
			require.Equal(t, c.story, r.told())
			require.Equal(t, c.least, r.least)
		})
	}
}

func TestOfFiftyInstancesAllPassAllTheTime(t *testing.T) {
	t.Parallel()
	r := newRollout(t, api.JobService, 50, soon)
	r.deploy(api.JobService, 50, "2", with(func(u *api.JobUpdate) { u.MaxParallel = 7 }))
	r.until(api.DeploymentSuccessful)
	require.Equal(t, 50, r.least)
	r.steps(2)
	require.Len(t, r.Instances, 50)
}

// The complaints below are those of users of another orchestrator, which are open there or were for years.

func TestHealthyOldInstancesAreNotStoppedWhileNewOnesFail(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"crash", "hang", "flap", "are never placed"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			r := newRollout(t, api.JobService, 3, soon)
			r.bad[2] = true
			r.deploy(api.JobService, 3, "2", with(func(u *api.JobUpdate) { u.MaxParallel = 2 }))
			for n := 0; r.Deployment().Active() && n < 1000; n++ {
				r.step()
				for _, i := range r.Instances {
					switch {
					case i.Version != 2 || !i.Open():
					case kind == "crash":
						r.EndInstance(i.TaskID, api.TaskFailed, "exit 1", r.now)
					case kind == "hang":
						r.report(&i, api.InstanceStarting)
					case kind == "flap" && n%2 == 0:
						r.report(&i, api.InstancePassing)
					case kind == "flap":
						r.report(&i, api.InstanceFailing)
					}
				}
			}
			failed := r.Deployment()
			require.Equal(t, api.DeploymentFailed, failed.Status)
			require.Contains(t, failed.Reason, "instance 0 was not healthy within 5m0s")
			require.InDelta(t, api.DefaultHealthyWithin, failed.EndedAt.Sub(failed.StartedAt), float64(5*time.Second),
				"the deadline fires whatever happens")
			require.Equal(t, 3, r.least)
			r.steps(5)
			require.Equal(t, "0@1 1@1 2@1", r.versions(), "what the failed version has started is stopped")

			t.Log("what must be started from now on has the version that was healthy")
			r.end("1", api.TaskFailed)
			r.steps(5)
			require.Equal(t, "0@1 1@1 2@1", r.versions())
			r.deploy(api.JobService, 3, "3", soon)
			r.until(api.DeploymentSuccessful)
			require.Equal(t, "0@3 1@3 2@3", r.versions())
		})
	}
}

func TestAFailedCanaryEndsTheDeployment(t *testing.T) {
	t.Parallel()
	r := newRollout(t, api.JobService, 3, soon)
	canary := with(func(u *api.JobUpdate) { u.Canary = 1 })
	r.deploy(api.JobService, 3, "2", canary)
	r.until(api.DeploymentWaiting)
	r.steps(10_000) // far beyond progress_within
	require.Equal(t, api.DeploymentWaiting, r.Deployment().Status, "a person may take as long as they like")
	require.Equal(t, "0@1 0@2 1@1 2@1", r.versions(), "the canary is beside the others")
	require.Empty(t, r.MayPromote())

	t.Log("one that was healthy and is not any more ends it, too")
	r.report(r.FindInstance("0"), api.InstanceFailing)
	r.step()
	require.Contains(t, r.MayPromote(), "not healthy yet")
	require.Contains(t, r.until(api.DeploymentFailed).Reason, "it is failing")
	r.steps(3)
	require.Equal(t, "0@1 1@1 2@1", r.versions())
	require.Equal(t, 3, r.least)

	t.Log("and a promoted one is followed")
	r.deploy(api.JobService, 3, "3", canary)
	r.until(api.DeploymentWaiting)
	r.PromoteCanaries("ada", r.now)
	require.Equal(t, "ada", r.until(api.DeploymentSuccessful).Promoted.By)
	require.Equal(t, "0@3 1@3 2@3", r.versions())
	require.Equal(t, 3, r.least)
	require.Contains(t, r.MayPromote(), "no deployment")
	require.Contains(t, r.MayFail(), "no deployment")
}

func TestARevertIsImmediateAndHasNoCanaries(t *testing.T) {
	t.Parallel()
	r := newRollout(t, api.JobService, 3, soon)
	r.bad[2] = true
	r.deploy(api.JobService, 3, "2", with(func(u *api.JobUpdate) { u.Canary, u.Revert = 1, true }))
	r.steps(3)
	r.FailDeployment("ada", "wrong colour", r.now)
	failed, at := r.Deployments[1], r.now
	require.Equal(t, []any{api.DeploymentFailed, "ended by ada: wrong colour", 1}, []any{failed.Status, failed.Reason,
		failed.RevertedTo})
	revert := r.until(api.DeploymentSuccessful)
	require.LessOrEqual(t, r.now.Sub(at), 10*time.Second)
	require.True(t, revert.Revert)
	require.Equal(t, "+0@2 -0@2", r.told(), "those that have the earlier version stay")
	require.Equal(t, "0@3 1@3 2@3", r.versions())
	require.Equal(t, 3, r.least)

	t.Log("in the middle of a rollout by its deadline, with the sick ones all at once")
	u := with(func(u *api.JobUpdate) { u.Revert = true })
	r.deploy(api.JobService, 3, "4", u)
	for r.FindInstance("1").Version != 4 {
		r.step()
	}
	r.bad[4] = true
	r.steps(4)
	for _, name := range []string{"0", "1"} {
		r.report(r.FindInstance(name), api.InstanceFailing)
	}
	r.until(api.DeploymentSuccessful)
	require.Equal(t, []int{3, 5}, []int{r.Deployments[3].RevertedTo, r.Version})
	r.steps(3)
	require.Equal(t, "0@5 1@5 2@5", r.versions())

	t.Log("a revert that fails is not reverted")
	r.deploy(api.JobService, 3, "6", u)
	r.steps(30)
	require.Equal(t, api.DeploymentSuccessful, r.Deployment().Status)
	r.bad[7] = true
	d := r.Find(5).Definition
	r.Revert(*d, "ada", r.now)
	require.Equal(t, 0, r.until(api.DeploymentFailed).RevertedTo)
	require.Equal(t, 7, r.Version)
}

func TestASystemJobHasDeploymentsHealthAndReverts(t *testing.T) {
	t.Parallel()
	u := with(func(u *api.JobUpdate) { u.Revert, u.Canary = true, 1 })
	r := newRollout(t, api.JobSystem, 3, u)
	r.bad[2] = true
	r.deploy(api.JobSystem, 3, "2", u)
	r.steps(5)
	require.Equal(t, "a@2 b@1 c@1", r.versions())

	t.Log("an agent that joins gets the version that was healthy")
	r.agents.Eligible = append(r.agents.Eligible, "d")
	r.steps(2)
	require.Equal(t, "a@2 b@1 c@1 d@1", r.versions())
	r.until(api.DeploymentSuccessful)
	require.Equal(t, 1, r.Deployments[1].RevertedTo)
	require.Equal(t, "a@3 b@3 c@3 d@3", r.versions())

	t.Log("an agent that is away does not hold the others up, and its deadline does not run")
	r.agents.Eligible, r.agents.Away = []string{"a", "b", "c"}, []string{"d"}
	r.deploy(api.JobSystem, 3, "4", soon)
	r.until(api.DeploymentSuccessful)
	r.steps(3)
	require.Equal(t, "a@4 b@4 c@4 d@4", r.versions())
}

// A canary with a static port cannot run beside the instance that has the port.
func TestACanaryWithAStaticPortDoesNotBlockItself(t *testing.T) {
	t.Parallel()
	u := with(func(u *api.JobUpdate) { u.Canary = 1 })
	r := newRollout(t, api.JobSystem, 2, u)
	r.deploy(api.JobSystem, 2, "2", u)
	r.until(api.DeploymentWaiting)
	require.Equal(t, "-a@1 +a@2", r.told(), "the port is free before the canary begins")
	r.PromoteCanaries("ada", r.now)
	r.until(api.DeploymentSuccessful)
	require.Equal(t, "-b@1 +b@2", r.told())

	t.Log("on a service's only agent it gives up in time, and the instance that has the port stays")
	r = newRollout(t, api.JobService, 1, u)
	r.bad[2] = true // there is no agent for it
	r.deploy(api.JobService, 1, "2", u)
	require.Contains(t, r.until(api.DeploymentFailed).Reason, "it runs on no agent")
	r.steps(2)
	require.Equal(t, "0@1", r.versions())
	require.Equal(t, 1, r.least)
}

// What a new instance said when it failed is why its deployment failed, not that it waits for its next start.
func TestADeploymentFailsForTheCauseOfItsInstance(t *testing.T) {
	t.Parallel()
	u := with(func(u *api.JobUpdate) { u.Canary = 1 })
	r := newRollout(t, api.JobService, 1, u)
	r.bad[2] = true
	r.deploy(api.JobService, 1, "2", u)
	r.steps(1)
	i := &r.Instances[slices.IndexFunc(r.Instances, func(i api.Instance) bool { return i.Version == 2 })]
	task := i.TaskID
	require.True(t, r.TakeHealth(HealthReport{Task: task, Attempt: 1, Why: "no config", Hub: "h"}, r.now))
	failed := r.until(api.DeploymentFailed)
	require.Contains(t, failed.Reason, "it fails again and again, last because of this: no config")
	require.Equal(t, task, failed.TaskID)

	r.deploy(api.JobService, 1, "3", u)
	r.steps(1)
	i = &r.Instances[slices.IndexFunc(r.Instances, func(i api.Instance) bool { return i.Version == 3 })]
	for _, health := range []HealthReport{{Why: "no config"}, {Health: api.InstancePassing}, {}} {
		health.Task, health.Hub, health.Attempt = i.TaskID, "h", 1
		r.TakeHealth(health, r.now)
	}
	require.Empty(t, i.Last, "it has passed since; now its agent is lost")
}

func TestAFailedVersionIsDeployedAgainWithAnotherUpdate(t *testing.T) {
	t.Parallel()
	r := newRollout(t, api.JobService, 3, soon)
	r.bad[2] = true
	r.deploy(api.JobService, 3, "2", soon)
	r.until(api.DeploymentFailed)
	r.steps(3)
	d := *r.Definition()
	d.Update = new(with(func(u *api.JobUpdate) { u.MaxParallel = 3 }))
	require.True(t, r.DeploysAgain(&d))
	require.True(t, r.DeployAgain(d, "ann", r.now))
	require.False(t, r.DeploysAgain(&d), "it is under way")
	require.Equal(t, 3, r.until(api.DeploymentSuccessful).Version)
	r.steps(2)
	require.Equal(t, "0@3 1@3 2@3", r.versions())
	require.Equal(t, 3, r.least)

	t.Log("one that was healthy stays as it is")
	d.Update = &soon
	require.False(t, r.DeploysAgain(&d))
	r.Apply(d, "ann", r.now)
	r.steps(3)
	require.Equal(t, "0@3 1@3 2@3", r.versions())
}

func TestUnhealthyInstancesAreReplacedFirst(t *testing.T) {
	t.Parallel()
	r := newRollout(t, api.JobService, 3, soon)
	r.report(r.FindInstance("2"), api.InstanceFailing)
	r.deploy(api.JobService, 3, "2", soon)
	r.until(api.DeploymentSuccessful)
	require.Equal(t, "+2@2 -2@1 +0@2 -0@1 +1@2 -1@1", r.told())
	require.Equal(t, 2, r.least, "as many as passed before")
}

func TestScalingDuringADeploymentMakesNoOther(t *testing.T) {
	t.Parallel()
	u := with(func(u *api.JobUpdate) { u.Canary = 1 })
	r := newRollout(t, api.JobService, 2, u)
	r.deploy(api.JobService, 2, "2", u)
	r.until(api.DeploymentWaiting)
	r.deploy(api.JobService, 4, "2", u)
	r.steps(5)
	require.Len(t, r.Deployments, 2)
	require.Equal(t, "0@1 0@2 1@1 2@1 3@1", r.versions(), "what is more has the version that is promoted")
	r.PromoteCanaries("ada", r.now)
	r.until(api.DeploymentSuccessful)
	require.Equal(t, "0@2 1@3 2@3 3@3", r.versions())
	require.Equal(t, api.VersionSpan{First: 2, Last: 3}, r.Stable)
	r.Count = 1
	r.steps(3)
	require.Equal(t, "0@2", r.versions())
	require.Len(t, r.Deployments, 2)
}

func TestABlipStartsTheClockOfAnInstanceAnew(t *testing.T) {
	t.Parallel()
	u := api.JobUpdate{HealthyAfter: api.Duration(time.Minute)}
	r := newRollout(t, api.JobService, 1, u)
	r.deploy(api.JobService, 1, "2", u)
	r.steps(40)
	r.report(r.FindInstance("0"), api.InstanceFailing)
	r.steps(5)
	r.report(r.FindInstance("0"), api.InstancePassing)
	began := r.now
	require.Equal(t, 60*time.Second, r.until(api.DeploymentSuccessful).EndedAt.Sub(began))
	require.Equal(t, 1, r.least)
}

func TestAnotherVersionOrAStopCancelsADeployment(t *testing.T) {
	t.Parallel()
	r := newRollout(t, api.JobService, 2, soon)
	r.bad[2] = true
	r.deploy(api.JobService, 2, "2", soon)
	r.steps(5)
	r.deploy(api.JobService, 2, "3", soon)
	r.until(api.DeploymentSuccessful)
	require.Equal(t, []any{api.DeploymentCancelled, "version 3 takes its place"}, []any{r.Deployments[1].Status,
		r.Deployments[1].Reason})
	require.Equal(t, 2, r.least)

	r.deploy(api.JobService, 2, "4", soon)
	r.steps(1)
	r.Stopped = &api.Decision{}
	r.steps(3)
	require.Equal(t, api.DeploymentCancelled, r.Deployment().Status)
	require.Empty(t, r.Instances)
	r.Resume(r.now)
	r.steps(2)
	require.Equal(t, "0@4 1@4", r.versions())
}

func TestAPausedJobsDeadlinesDoNotRun(t *testing.T) {
	t.Parallel()
	r := newRollout(t, api.JobService, 1, soon)
	r.bad[2] = true
	r.deploy(api.JobService, 1, "2", soon)
	r.steps(10)
	r.Paused = &api.Decision{At: r.now}
	r.steps(1000)
	require.Equal(t, api.DeploymentRunning, r.Deployment().Status)
	r.Resume(r.now)
	failed := r.until(api.DeploymentFailed)
	require.InDelta(t, api.DefaultHealthyWithin+1000*time.Second, failed.EndedAt.Sub(failed.StartedAt), float64(5*time.Second))
}

func TestADeploymentKnowsWhenItGetsOn(t *testing.T) {
	t.Parallel()
	r := newRollout(t, api.JobService, 1, soon)
	require.Zero(t, r.NextStart())
	r.bad[2] = true
	r.deploy(api.JobService, 1, "2", soon)
	r.steps(2)
	require.Equal(t, api.DefaultHealthyWithin, r.NextStart().Sub(r.Deployment().StartedAt), "the deadline")
	r.report(r.FindInstance("0"), api.InstancePassing)
	require.Equal(t, 2*time.Second, r.NextStart().Sub(r.now))
}

func TestTheFirstUpdateOfAJobThatHadNone(t *testing.T) {
	t.Parallel()
	r := &rollout{t: t, keeper: newKeeper(api.JobService, 2), bad: map[int]bool{}}
	r.steps(2)
	require.Nil(t, r.Deployment())
	d := withInstances(api.JobService, 2)
	d.Update = &soon
	r.apply(d)
	r.steps(2)
	require.Equal(t, "0@1 1@1", r.versions(), "nothing that instances notice has changed")
	r.deploy(api.JobService, 2, "2", with(func(u *api.JobUpdate) { u.Canary = 1 }))
	require.Equal(t, 2, r.until(api.DeploymentWaiting).Before, "what ran before counts as healthy")
	require.Equal(t, "0@1 0@3 1@1", r.versions())
}

func TestTheVersionThatWasHealthyIsKept(t *testing.T) {
	t.Parallel()
	r := newRollout(t, api.JobService, 1, soon)
	for n := range 10 {
		r.bad[n+2] = true
		r.deploy(api.JobService, 1, strconv.Itoa(n+2), soon)
		r.steps(2)
	}
	require.NotNil(t, r.Find(1))
	require.Len(t, r.Versions, VersionsKept)
	require.Len(t, r.Deployments, DeploymentsKept)
	require.Contains(t, r.versions(), "0@1")
}

func TestLargeVersionsAreKeptInPart(t *testing.T) {
	t.Parallel()
	j := Job{Name: "j"}
	quoted := func(text string) json.RawMessage { return json.RawMessage(`"` + text + `"`) }
	for n := range 5 {
		d := api.JobDefinition{Job: "j", Inputs: quoted(strings.Repeat(strconv.Itoa(n), 250<<10))}
		require.True(t, j.Apply(d, "ada", time.Unix(0, 0)))
	}
	require.Len(t, j.Versions, 4, "of five they would have more than 1 MiB")
	require.Equal(t, 2, j.Versions[0].Version)
	huge := api.JobDefinition{Job: "j", Inputs: quoted(strings.Repeat("x", 2<<20))}
	require.True(t, j.Apply(huge, "ada", time.Unix(0, 0)))
	require.Len(t, j.Versions, 2, "the one in force, and one to revert to")
}

func TestHealthIsThatOfTheNewestAttempt(t *testing.T) {
	t.Parallel()
	k := newKeeper(api.JobService, 1)
	k.plan(nil)
	task := k.FindInstance("0").TaskID
	for _, c := range []struct {
		attempt int
		health  api.InstanceHealth
		hub     string
		want    bool
		now     api.InstanceHealth
	}{
		{1, "", "a", false, ""},
		{1, "passing", "a", true, "passing"},
		{1, "passing", "b", false, "passing"}, // its agent has moved
		{1, "", "a", false, "passing"},
		{1, "", "b", true, ""},
		{2, "starting", "b", true, "starting"},
		{1, "passing", "a", false, "starting"},
	} {
		got := k.TakeHealth(HealthReport{Task: task, Attempt: c.attempt, Health: c.health, Hub: c.hub}, k.now)
		require.Equal(t, c.want, got, "%+v", c)
		require.Equal(t, c.now, k.FindInstance("0").Health, "%+v", c)
	}
	require.False(t, k.TakeHealth(HealthReport{Task: "other"}, k.now))

	flaps := HealthReport{Task: task, Attempt: 2, Health: api.InstancePassing, Changes: 1, Hub: "b"}
	require.True(t, k.TakeHealth(flaps, k.now))
	flaps.Changes = 3
	later := k.now.Add(time.Second)
	require.True(t, k.TakeHealth(flaps, later), "it failed in between")
	require.Equal(t, later, k.FindInstance("0").HealthAt)
	require.False(t, k.TakeHealth(flaps, later))
}

func TestAServiceIsMovedOffAnAgentThatIsDrained(t *testing.T) {
	t.Parallel()
	r := newRollout(t, api.JobService, 2, soon)
	leave := func(leaving bool) {
		i := r.Instances[0]
		r.TakeHealth(HealthReport{Task: i.TaskID, Attempt: 1, Health: api.InstancePassing, Hub: "h",
			Leaving: leaving}, r.now)
	}
	leave(true)
	r.steps(3)
	require.Equal(t, "+0@1 -0@1", r.told(), "the other begins before it is stopped")
	require.Equal(t, "0@1 1@1", r.versions())
	require.Equal(t, 2, r.least)
	require.Len(t, r.Deployments, 1, "a drain makes no deployment")

	t.Log("the drain is cancelled before the other passes: nothing is there twice")
	r.bad[1] = true
	leave(true)
	r.steps(3)
	require.Equal(t, "0@1 1@1 1@1", r.versions())
	leave(false)
	r.steps(3)
	require.Equal(t, "+1@1 -1@1", r.told())
	require.Equal(t, "0@1 1@1", r.versions())
	require.Equal(t, 2, r.least)
}

func TestADrainMovesAServiceDuringADeployment(t *testing.T) {
	t.Parallel()
	leave := func(r *rollout, name string, version int) {
		n := slices.IndexFunc(r.Instances, func(i api.Instance) bool {
			return i.Name == name && i.Version == version && i.Open()
		})
		r.TakeHealth(HealthReport{Task: r.Instances[n].TaskID, Attempt: 1, Health: api.InstancePassing, Hub: "h",
			Leaving: true}, r.now)
	}
	canary := with(func(u *api.JobUpdate) { u.Canary = 1 })
	for name, c := range map[string]struct {
		drained string
		version int
		story   string
		all     string // with promotion
	}{
		"an old instance":               {"1", 1, "+1@1 -1@1", "-0@1 +1@2 -1@1"},
		"an old one beside its canary":  {"0", 1, "+0@1 -0@1", "-0@1 +1@2 -1@1"},
		"the canary of the new version": {"0", 2, "+0@2 -0@2", "-0@1 +1@2 -1@1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRollout(t, api.JobService, 2, soon)
			r.deploy(api.JobService, 2, "2", canary)
			r.until(api.DeploymentWaiting)
			require.Equal(t, "+0@2", r.told())
			leave(r, c.drained, c.version)
			r.steps(600)
			require.Equal(t, c.story, r.told(), "the other begins before it is stopped, and once")
			require.Equal(t, "0@1 0@2 1@1", r.versions())
			require.Equal(t, api.DeploymentWaiting, r.Deployment().Status)
			r.PromoteCanaries("ada", r.now)
			r.until(api.DeploymentSuccessful)
			require.Equal(t, c.all, r.told())
			require.Equal(t, 2, r.least)
		})
	}

	t.Log("no agent has room for another canary: the one that is drained stays, and the deployment does not fail")
	r := newRollout(t, api.JobService, 2, soon)
	r.deploy(api.JobService, 2, "2", canary)
	r.until(api.DeploymentWaiting)
	r.bad[2] = true
	leave(r, "0", 2)
	r.steps(600)
	require.Equal(t, api.DeploymentWaiting, r.Deployment().Status)
	require.Equal(t, "0@1 0@2 0@2 1@1", r.versions())

	t.Log("two instances of one agent, in the middle of a rollout")
	r = newRollout(t, api.JobService, 4, soon)
	r.deploy(api.JobService, 4, "2", soon)
	for r.FindInstance("1").Version != 2 {
		r.step()
	}
	leave(r, "0", 2)
	leave(r, "3", 1)
	r.until(api.DeploymentSuccessful)
	require.Equal(t, "0@2 1@2 2@2 3@2", r.versions())
	require.Equal(t, 4, r.least)
}

func TestADeploymentIsOverdueWhenNobodyEndsIt(t *testing.T) {
	t.Parallel()
	r := newRollout(t, api.JobService, 2, soon)
	require.False(t, r.Short())
	r.bad[2] = true
	r.deploy(api.JobService, 2, "2", with(func(u *api.JobUpdate) { u.HealthyWithin = api.Duration(20 * time.Second) }))
	r.steps(5)
	require.False(t, r.Short(), "the old ones go on")
	deadline := r.now.Add(20 * time.Second)
	require.False(t, r.Overdue(deadline))
	require.True(t, r.Overdue(deadline.Add(overdueAfter)), "nobody planned since then")
	r.until(api.DeploymentFailed)
	require.False(t, r.Overdue(deadline.Add(time.Hour)))
	r.report(&r.Instances[0], api.InstanceFailing)
	require.True(t, r.Short())
	r.Paused = &api.Decision{}
	require.False(t, r.Short(), "a paused job starts nothing")
}

// Definitions are letters; what is applied is a letter, "!" before it fails its deployment, "<" reverts without a
// version and a digit reverts to that version.
func TestARevertGoesToTheVersionBeforeThePresentContent(t *testing.T) {
	t.Parallel()
	for story, want := range map[string]string{
		"A":             "no version is kept",
		"A B":           "1",
		"A B <":         "no version is kept", // not back to B, which was left
		"A B C <":       "1",
		"A B C < <":     "no version is kept",
		"A B C 1":       "no version is kept",
		"A B A":         "2",
		"A B !C":        "2",
		"A !B C":        "1", // B was never well
		"!A B":          "no version is kept",
		"A B !A":        "2",
		"A B C 1 D <":   "no version is kept",
		"A B b <":       "no version is kept", // b is B with another count
		"A B b":         "1",
		"A B C D E F G": "6",
	} {
		t.Run(story, func(t *testing.T) {
			t.Parallel()
			r := newRollout(t, api.JobService, 1, soon)
			r.Job = &Job{Name: "j"}
			for _, what := range strings.Fields(story) {
				status := api.DeploymentSuccessful
				if what[0] == '!' {
					what, status = what[1:], api.DeploymentFailed
					r.bad[r.Version+1] = true
				}
				switch named, err := strconv.Atoi(what); {
				case err == nil:
					r.Revert(*r.Find(named).Definition, "ada", r.now)
				case what == "<":
					v, why := r.RevertsTo()
					require.Empty(t, why)
					r.Revert(*v.Definition, "ada", r.now)
					_, why = r.RevertsTo()
					require.Contains(t, why, "is under way", "typed twice, it does not go back twice")
				default:
					count := 1
					if strings.ToLower(what) == what {
						count = 2
					}
					r.deploy(api.JobService, count, strconv.Quote(strings.ToUpper(what)), with(func(u *api.JobUpdate) {
						u.HealthyWithin = api.Duration(5 * time.Second)
					}))
				}
				r.until(status)
			}
			v, why := r.RevertsTo()
			if v != nil {
				require.False(t, v.Definition.Equal(r.Definition()))
				why = strconv.Itoa(v.Version)
			}
			require.Contains(t, why, want)
		})
	}
}

func TestARevertOfAJobWithStepsNeedsNoDeployment(t *testing.T) {
	t.Parallel()
	j := &Job{Name: "j"}
	for _, cluster := range []string{"a", "b"} {
		require.True(t, j.Apply(api.JobDefinition{Type: api.JobBatch, Cluster: cluster}, "", noon))
	}
	v, why := j.RevertsTo()
	require.Empty(t, why)
	require.True(t, j.Revert(*v.Definition, "", noon))
	require.Equal(t, api.JobVersion{Version: 3, Definition: v.Definition, At: noon, Reverts: 1}, *j.Find(3))
	v, why = j.RevertsTo()
	require.Nil(t, v, "not back to what was left")
	require.Contains(t, why, "name a version")
}

// A check that fails now and then does not make an instance failing, and is a break all the same.
func TestHealthyAfterIsWithoutABreak(t *testing.T) {
	t.Parallel()
	r := newRollout(t, api.JobService, 1, soon)
	r.deploy(api.JobService, 1, "2", with(func(u *api.JobUpdate) { u.HealthyWithin = api.Duration(20 * time.Second) }))
	turns := int64(0)
	turn := func() {
		turns++
		i := r.FindInstance("0")
		require.Equal(t, 2, i.Version)
		require.True(t, r.TakeHealth(HealthReport{Task: i.TaskID, Attempt: 1, Health: api.InstancePassing, Turns: turns,
			Hub: "h"}, r.now))
		require.Equal(t, turns%2 == 0, isSteady(i))
		next := r.NextStart()
		require.True(t, next.IsZero() || next.After(r.now), "nothing is looked at again and again: %s", next)
	}
	r.steps(2)
	for range 4 { // it passes for a second, is not well for three, and so on
		turn()
		r.steps(3)
		turn()
		r.step()
		require.Equal(t, api.DeploymentRunning, r.Deployment().Status)
		require.False(t, r.FindInstance("0").Proven)
	}
	turn()
	require.Contains(t, r.until(api.DeploymentFailed).Reason, "has not passed for 2s without a break")

	t.Log("one that is proven stays so")
	r = newRollout(t, api.JobService, 1, soon)
	r.deploy(api.JobService, 1, "2", with(func(u *api.JobUpdate) { u.Canary = 1 }))
	r.until(api.DeploymentWaiting)
	turns = 0
	turn()
	r.steps(3)
	require.Equal(t, api.DeploymentWaiting, r.Deployment().Status)
}

func TestADeploymentWithCanariesEndsWhenAServiceIsScaledToNothing(t *testing.T) {
	t.Parallel()
	for _, status := range []api.DeploymentStatus{api.DeploymentRunning, api.DeploymentWaiting} {
		r := newRollout(t, api.JobService, 2, soon)
		r.deploy(api.JobService, 2, "2", with(func(u *api.JobUpdate) { u.Canary = 1 }))
		r.until(status)
		r.Count = 0
		require.Contains(t, r.until(api.DeploymentCancelled).Reason, "0 instances")
		r.steps(3)
		require.Empty(t, r.versions())
		require.True(t, r.NextStart().IsZero(), "nothing is awaited")
		r.Count = 2
		r.steps(2)
		require.Equal(t, "0@2 1@2", r.versions())
	}
}

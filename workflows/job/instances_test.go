package job_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/mainstay/workflows/workflowtest"
	"mainstay.dev/sdk/api"
)

// instanceScenario is a job with instances, beside the cluster that it looks at.
type instanceScenario struct {
	*scenario
	agents  job.Agents
	ended   []string // tasks that ended without a word
	broken  bool     // nothing can be started or stopped
	running map[string]string
	changes []string
	sick    map[int]bool // versions whose instances do not pass
	defined []string     // the payloads of the instances that were started
	events  workflowtest.Sent[cluster.Event]
	missing []string // required services without a healthy instance
	looks   int
}

func newInstances(t *testing.T) *instanceScenario {
	t.Helper()
	s := &instanceScenario{scenario: newScenario(t), running: map[string]string{}}
	s.env.RegisterActivityWithOptions(func(in contract.LookAtInstances) (contract.InstancesSeen, error) {
		seen := contract.InstancesSeen{Agents: s.agents, Missing: s.missing}
		s.looks++
		for _, task := range in.Tasks {
			if slices.Contains(s.ended, task) {
				seen.Ended = append(seen.Ended, task)
			}
		}
		return seen, nil
	}, activity.RegisterOptions{Name: contract.LookAtInstancesActivity.Name})
	s.env.OnSignalExternalWorkflow(mock.Anything, contract.ClusterWorkflowID("gpu"), mock.Anything,
		contract.AnnounceSignal.Name, mock.Anything).Return(func(_, _, _, _ string, arg any) error {
		s.events.Add(arg.(contract.Announcement).Events...)
		return nil
	}).Maybe()
	s.env.RegisterActivityWithOptions(func(in contract.ChangeInstances) ([]string, error) {
		if s.broken {
			return nil, errors.New("Temporal is away")
		}
		for _, i := range in.Change.Start {
			s.running[i.Name] = i.TaskID
			s.changes = append(s.changes, "+"+i.Name)
			s.begin(in, i)
		}
		for _, i := range in.Change.Stop {
			s.changes = append(s.changes, "-"+i.Name)
			s.endSoon(i.TaskID, api.TaskCancelled)
		}
		return nil, nil
	}, activity.RegisterOptions{Name: contract.ChangeInstancesActivity.Name})
	return s
}

// begin has a hub tell that an instance passes, unless its version is sick.
func (s *instanceScenario) begin(in contract.ChangeInstances, i api.Instance) {
	d := in.Definition
	for _, other := range in.Others {
		if other.Version == i.Version {
			d = other.Definition
		}
	}
	s.defined = append(s.defined, string(d.Instances.Task.Payload))
	if !s.sick[i.Version] {
		s.env.RegisterDelayedCallback(func() {
			s.env.SignalWorkflow(contract.InstancesHealthSignal.Name, []contract.HealthReport{{Task: i.TaskID, Attempt: 1,
				Health: api.InstancePassing, Hub: "h"}})
		}, time.Second)
	}
}

// endSoon has an instance's task tell its end.
func (s *instanceScenario) endSoon(task string, status api.TaskStatus) {
	s.env.RegisterDelayedCallback(func() {
		s.env.SignalWorkflow(contract.InstanceEndedSignal.Name, contract.InstanceEnded{Task: task, Status: status})
	}, time.Second)
}

func (s *instanceScenario) apply(kind api.JobType, count int, payload string) {
	d := api.JobDefinition{Job: "nightly", Type: kind, Cluster: "gpu", Instances: &api.Instances{Count: &count,
		Task: &api.TaskSpec{Type: "serve", Payload: []byte(payload)}}}
	s.update(contract.ApplyJobUpdate.Name, contract.ApplyJob{Definition: d, By: "ada"})
}

// updates applies a definition whose instances are replaced one after the other.
func (s *instanceScenario) updates(payload string, u api.JobUpdate) *workflowtest.Answer {
	u.HealthyAfter = api.Duration(5 * time.Second)
	d := api.JobDefinition{Job: "nightly", Type: api.JobService, Cluster: "gpu", Update: &u, Instances: &api.Instances{Count: new(2),
		Task: &api.TaskSpec{Type: "serve", Payload: []byte(payload)}}}
	return s.update(contract.ApplyJobUpdate.Name, contract.ApplyJob{Definition: d, By: "ada"})
}

func (s *instanceScenario) moves(agents job.Agents) {
	s.then(func() {
		s.agents = agents
		s.env.SignalWorkflow(contract.AgentsMovedSignal.Name, "gpu")
	})
}

func (s *instanceScenario) changed() string { return strings.Join(s.changes, " ") }

func TestAServiceIsKeptScaledStoppedAndResumed(t *testing.T) {
	t.Parallel()
	s := newInstances(t)
	s.apply(api.JobService, 2, "1")
	s.then(func() { s.endSoon(s.running["0"], api.TaskCompleted) })
	scaled := s.update(contract.ScaleJobUpdate.Name, contract.ScaleJob{Count: 3})
	s.apply(api.JobService, 2, "2")
	stopped := s.update(contract.StopJobUpdate.Name, contract.RunRequest{By: "ada"})
	s.update(contract.ResumeJobUpdate.Name, contract.RunRequest{By: "ada"})
	s.update(contract.DeleteJobUpdate.Name, contract.RunRequest{By: "ada"})
	s.execute()
	require.NoError(t, scaled.Err)
	require.NoError(t, stopped.Err)
	require.NoError(t, s.env.GetWorkflowError(), "the workflow of a deleted job ends once its instances have")
	require.Equal(t, "+0 +1 +0 +2 -0 -1 -2 +0 +1 +2 -0 -1 -2 +0 +1 +2 -0 -1 -2", s.changed())
}

func TestADeploymentIsPromotedFailedAndReverted(t *testing.T) {
	t.Parallel()
	s := newInstances(t)
	s.sick = map[int]bool{3: true, 5: true}
	s.updates("1", api.JobUpdate{})
	early := s.update(contract.PromoteJobUpdate.Name, contract.RunRequest{By: "ada"})
	s.updates("2", api.JobUpdate{Canary: 1})
	s.then(func() { require.Equal(t, "+0 +1 +0", s.changed(), "one canary, and nothing more") })
	promoted := s.update(contract.PromoteJobUpdate.Name, contract.RunRequest{By: "ada"})
	s.at += 5 * time.Minute
	s.then(func() { require.Equal(t, "+0 +1 +0 +1 -0 -1", s.changed()) })

	t.Log("by its deadline, without being told of anything")
	s.updates("3", api.JobUpdate{Revert: true})
	s.at += 10 * time.Minute
	s.then(func() { require.Equal(t, "+0 +1 +0 +1 -0 -1 +0 -0", s.changed()) })

	t.Log("by a person, and what is started then has the version that was healthy")
	s.updates("5", api.JobUpdate{})
	s.update(contract.FailDeploymentUpdate.Name, contract.RunRequest{By: "ada", Reason: "too slow"})
	late := s.update(contract.FailDeploymentUpdate.Name, contract.RunRequest{By: "ada"})
	s.update(contract.ScaleJobUpdate.Name, contract.ScaleJob{Count: 3})
	s.then(func() {})
	s.execute()
	require.ErrorContains(t, early.Err, "no deployment of the job is under way")
	require.NoError(t, promoted.Err)
	require.ErrorContains(t, late.Err, "no deployment of the job is under way")
	require.Equal(t, "+0 +1 +0 +1 -0 -1 +0 -0 +0 -0 +2", s.changed())
	require.Equal(t, []string{"1", "1", "2", "2", "3", "5", "2"}, s.defined)
	var story []string
	for _, e := range s.events.All() {
		require.Equal(t, "nightly", e.ID)
		story = append(story, e.Outcome+" "+e.Reason)
	}
	require.Equal(t, []string{"running version 1", "successful version 1", "running version 2", "waiting version 2",
		"running version 2", "successful version 2", "running version 3",
		"failed version 3: instance 0 was not healthy within 5m0s: it runs on no agent", "successful version 4",
		"running version 5", "failed version 5: ended by ada: too slow"}, story)
}

func TestASystemJobFollowsItsAgents(t *testing.T) {
	t.Parallel()
	s := newInstances(t)
	s.agents = job.Agents{Eligible: []string{"a", "b"}}
	s.apply(api.JobSystem, 0, "1")
	refused := s.update(contract.ScaleJobUpdate.Name, contract.ScaleJob{Count: 3})
	s.moves(job.Agents{Eligible: []string{"a", "b", "c"}})
	s.moves(job.Agents{Eligible: []string{"a", "c"}, Away: []string{"b"}})
	s.moves(job.Agents{Eligible: []string{"a", "c"}})
	s.execute()
	require.ErrorContains(t, refused.Err, "only a service is scaled")
	require.Equal(t, "+a +b +c -b", s.changed())
}

// The time at which instances have passed for long enough may be just that until which looks at the agents rest. No
// look is due then, so that must not hide it.
func TestADeploymentGetsOnAfterALook(t *testing.T) {
	t.Parallel()
	s := newInstances(t)
	s.agents, s.sick = job.Agents{Eligible: []string{"a"}}, map[int]bool{1: true}
	s.update(contract.ApplyJobUpdate.Name, contract.ApplyJob{By: "ada", Definition: api.JobDefinition{Job: "nightly",
		Type: api.JobSystem, Cluster: "gpu", Update: &api.JobUpdate{HealthyAfter: api.Duration(500 * time.Millisecond)},
		Instances: &api.Instances{Task: &api.TaskSpec{Type: "serve"}}}})
	s.then(func() {
		s.env.SignalWorkflow(contract.AgentsMovedSignal.Name, "gpu")
		s.env.SignalWorkflow(contract.InstancesHealthSignal.Name, []contract.HealthReport{{Task: s.running["a"], Attempt: 1,
			Health: api.InstancePassing, Hub: "h"}})
	})
	s.then(func() {
		events := s.events.All()
		require.Equal(t, string(api.DeploymentSuccessful), events[len(events)-1].Outcome)
	})
	s.execute()
}

func TestInstancesAreTriedAgainAndLookedAfter(t *testing.T) {
	t.Parallel()
	s := newInstances(t)
	s.broken = true
	s.apply(api.JobService, 1, "1")
	s.at += 5 * time.Minute
	s.then(func() {
		require.Empty(t, s.changes)
		s.broken = false
	})
	s.then(func() { s.ended = []string{s.running["0"]} })
	s.at += time.Hour
	s.then(func() { require.Equal(t, "+0 +0", s.changed(), "an end without a word is found") })
	s.then(func() { s.env.SetCurrentHistoryLength(2000) })
	s.execute()
	var next *workflow.ContinueAsNewError
	require.True(t, errors.As(s.env.GetWorkflowError(), &next))
}

func TestAJobWithStepsHasNoInstances(t *testing.T) {
	t.Parallel()
	s := newInstances(t)
	s.update(contract.ApplyJobUpdate.Name, contract.ApplyJob{Definition: definition(nil)})
	stopped := s.update(contract.StopJobUpdate.Name, contract.RunRequest{})
	d := api.JobDefinition{Job: "nightly", Type: api.JobService, Cluster: "gpu",
		Instances: &api.Instances{Task: &api.TaskSpec{Type: "serve"}}}
	other := s.update(contract.ApplyJobUpdate.Name, contract.ApplyJob{Definition: d})
	s.execute()
	require.ErrorContains(t, stopped.Err, "has steps")
	require.ErrorContains(t, other.Err, "cannot become one with instances")
}

func TestRequiredServicesAreWaitedFor(t *testing.T) {
	t.Parallel()
	s := newInstances(t)
	s.missing = []string{"db"}
	d := api.JobDefinition{Job: "nightly", Type: api.JobService, Cluster: "gpu", Requires: &api.Requires{Services: []string{"db"}},
		Update:    &api.JobUpdate{HealthyAfter: api.Duration(time.Second), HealthyWithin: api.Duration(time.Minute)},
		Instances: &api.Instances{Count: new(1), Task: &api.TaskSpec{Type: "serve"}}}
	s.update(contract.ApplyJobUpdate.Name, contract.ApplyJob{Definition: d, By: "ada"})
	s.at += time.Hour
	s.then(func() {
		require.Empty(t, s.changes)
		require.Less(t, s.looks, 100, "it looks less and less often")
		s.missing = nil
	})
	s.then(func() {})
	s.then(func() {
		require.Equal(t, "+0", s.changed())
		s.missing = []string{"db"}
		s.endSoon(s.running["0"], api.TaskFailed)
	})
	s.at += time.Hour
	s.then(func() {
		require.Equal(t, "+0", s.changed(), "it is not started anew without the service")
		s.missing = nil
	})
	s.then(func() {})
	s.then(func() {})
	s.execute()
	require.Equal(t, "+0 +0", s.changed())
	events := s.events.All()
	require.Contains(t, events[len(events)-1].Outcome, "successful", "deadlines do not run meanwhile")
}

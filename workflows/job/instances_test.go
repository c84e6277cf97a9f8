package job_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/job"
)

// instanceScenario is a job with instances, beside the cluster that it looks at.
type instanceScenario struct {
	*scenario
	agents  job.Agents
	ended   []string // tasks that ended without a word
	broken  bool     // nothing can be started or stopped
	running map[string]string
	changes []string
}

func newInstances(t *testing.T) *instanceScenario {
	t.Helper()
	s := &instanceScenario{scenario: newScenario(t), running: map[string]string{}}
	s.env.RegisterActivityWithOptions(func(in contract.LookAtInstances) (contract.InstancesSeen, error) {
		seen := contract.InstancesSeen{Agents: s.agents}
		for _, task := range in.Tasks {
			if slices.Contains(s.ended, task) {
				seen.Ended = append(seen.Ended, task)
			}
		}
		return seen, nil
	}, activity.RegisterOptions{Name: contract.LookAtInstancesActivity.Name})
	s.env.RegisterActivityWithOptions(func(in contract.ChangeInstances) ([]string, error) {
		if s.broken {
			return nil, errors.New("Temporal is away")
		}
		for _, i := range in.Change.Start {
			s.running[i.Name] = i.TaskID
			s.changes = append(s.changes, "+"+i.Name)
		}
		for _, i := range in.Change.Stop {
			s.changes = append(s.changes, "-"+i.Name)
			s.endSoon(i.Name, fleet.TaskCancelled)
		}
		return nil, nil
	}, activity.RegisterOptions{Name: contract.ChangeInstancesActivity.Name})
	return s
}

// endSoon has an instance's task tell its end.
func (s *instanceScenario) endSoon(name string, status fleet.TaskStatus) {
	task := s.running[name]
	s.env.RegisterDelayedCallback(func() {
		s.env.SignalWorkflow(contract.InstanceEndedSignal.Name, contract.InstanceEnded{Task: task, Status: status})
	}, time.Second)
}

func (s *instanceScenario) apply(kind job.Type, count int, payload string) {
	d := job.Definition{Job: "nightly", Type: kind, Cluster: "gpu", Instances: &job.Instances{Count: count,
		Task: &fleet.TaskSpec{Type: "serve", Payload: []byte(payload)}}}
	s.update(contract.ApplyJobUpdate.Name, contract.ApplyJob{Definition: d, By: "ada"})
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
	s.apply(job.Service, 2, "1")
	s.then(func() { s.endSoon("0", fleet.TaskCompleted) })
	scaled := s.update(contract.ScaleJobUpdate.Name, contract.ScaleJob{Count: 3})
	s.apply(job.Service, 2, "2")
	stopped := s.update(contract.StopJobUpdate.Name, contract.RunRequest{By: "ada"})
	s.update(contract.ResumeJobUpdate.Name, contract.RunRequest{By: "ada"})
	s.update(contract.DeleteJobUpdate.Name, contract.RunRequest{By: "ada"})
	s.execute()
	require.NoError(t, scaled.Err)
	require.NoError(t, stopped.Err)
	require.NoError(t, s.env.GetWorkflowError(), "the workflow of a deleted job ends once its instances have")
	require.Equal(t, "+0 +1 +0 +2 -0 -1 -2 +0 +1 +2 -0 -1 -2 +0 +1 +2 -0 -1 -2", s.changed())
}

func TestASystemJobFollowsItsAgents(t *testing.T) {
	t.Parallel()
	s := newInstances(t)
	s.agents = job.Agents{Eligible: []string{"a", "b"}}
	s.apply(job.System, 0, "1")
	refused := s.update(contract.ScaleJobUpdate.Name, contract.ScaleJob{Count: 3})
	s.moves(job.Agents{Eligible: []string{"a", "b", "c"}})
	s.moves(job.Agents{Eligible: []string{"a", "c"}, Away: []string{"b"}})
	s.moves(job.Agents{Eligible: []string{"a", "c"}})
	s.execute()
	require.ErrorContains(t, refused.Err, "only a service is scaled")
	require.Equal(t, "+a +b +c -b", s.changed())
}

func TestInstancesAreTriedAgainAndLookedAfter(t *testing.T) {
	t.Parallel()
	s := newInstances(t)
	s.broken = true
	s.apply(job.Service, 1, "1")
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
	d := job.Definition{Job: "nightly", Type: job.Service, Cluster: "gpu",
		Instances: &job.Instances{Task: &fleet.TaskSpec{Type: "serve"}}}
	other := s.update(contract.ApplyJobUpdate.Name, contract.ApplyJob{Definition: d})
	s.execute()
	require.ErrorContains(t, stopped.Err, "has steps")
	require.ErrorContains(t, other.Err, "cannot become one with instances")
}

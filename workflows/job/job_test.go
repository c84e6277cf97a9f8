package job_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	sdktestsuite "go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/mainstay/worker"
	"mainstay.dev/mainstay/workflows/workflowtest"
	"mainstay.dev/sdk/api"
)

// scenario is a Job workflow with what it is sent, each a minute after the one before.
type scenario struct {
	t   *testing.T
	env *sdktestsuite.TestWorkflowEnvironment
	at  time.Duration
	// told is what runs were told.
	told workflowtest.Sent[job.Verdict]
	// gone are the runs that have ended without a word.
	gone []string
	kept []contract.ScheduleJob
	keep func(contract.ScheduleJob) error // nil: all are written
}

func newScenario(t *testing.T) *scenario {
	t.Helper()
	s := &scenario{t: t, env: workflowtest.NewEnvironment()}
	worker.RegisterWorkflows(s.env)
	s.env.OnUpsertMemo(mock.Anything).Return(nil)
	s.env.OnUpsertTypedSearchAttributes(mock.Anything).Return(nil)
	s.env.OnSignalExternalWorkflow(mock.Anything, mock.Anything, mock.Anything, contract.RunAdmittedSignal.Name,
		mock.Anything).Return(func(_, workflowID, _, _ string, arg any) error {
		run, _ := contract.RunOfWorkflowID(workflowID)
		s.told.Add(job.Verdict{Run: run, Admission: arg.(job.Admission)})
		return nil
	})
	s.env.RegisterActivityWithOptions(func([]string) ([]string, error) { return s.gone, nil },
		activity.RegisterOptions{Name: contract.EndedRunsActivity.Name})
	s.env.RegisterActivityWithOptions(func(in contract.ScheduleJob) error {
		s.kept = append(s.kept, in)
		if s.keep != nil {
			return s.keep(in)
		}
		return nil
	}, activity.RegisterOptions{Name: contract.ScheduleJobActivity.Name})
	return s
}

func (s *scenario) update(name string, arg any) *workflowtest.Answer {
	answer := &workflowtest.Answer{}
	s.then(func() { s.env.UpdateWorkflow(name, "", answer, arg) })
	return answer
}

func (s *scenario) then(do func()) {
	s.at += time.Minute
	s.env.RegisterDelayedCallback(do, s.at)
}

func (s *scenario) begins(run string) {
	s.then(func() { s.env.SignalWorkflow(contract.RunBeginsSignal.Name, contract.RunBegins{Run: run}) })
}

func (s *scenario) ends(run string) {
	s.then(func() { s.env.SignalWorkflow(contract.RunEndedSignal.Name, contract.RunEnded{Run: run}) })
}

// runs are the runs that were told something. Those that are told at once have no order.
func (s *scenario) runs() (list []string) {
	for _, v := range s.told.All() {
		list = append(list, v.Run)
	}
	slices.Sort(list)
	return list
}

func (s *scenario) execute() {
	s.env.RegisterDelayedCallback(s.env.CancelWorkflow, s.at+time.Minute)
	s.env.ExecuteWorkflow(contract.JobWorkflow, contract.JobInput{Name: "nightly"})
	require.True(s.t, s.env.IsWorkflowCompleted())
}

func definition(change func(*api.JobDefinition)) api.JobDefinition {
	d := api.JobDefinition{Job: "nightly", Cluster: "gpu", Steps: map[string]*api.Step{"a": {}}}
	if change != nil {
		change(&d)
	}
	return d
}

func one(d *api.JobDefinition) { d.Concurrency = &api.Concurrency{MaxRuns: 1} }

func hourly(d *api.JobDefinition) {
	d.On = []api.JobTrigger{{Schedule: &api.ScheduleTrigger{Cron: "0 * * * *"}}}
}

func versionOf(t *testing.T, a *workflowtest.Answer) int {
	t.Helper()
	require.NoError(t, a.Err)
	return a.Value.(job.Job).Version
}

func TestUpdatesAnswerOnlyTheDefinitionInForce(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	s.update(contract.ApplyJobUpdate.Name, contract.ApplyJob{Definition: definition(nil)})
	on := func(d *api.JobDefinition) { d.On = []api.JobTrigger{{Event: &api.EventTrigger{Type: "pushed"}}} }
	answers := []*workflowtest.Answer{
		s.update(contract.ApplyJobUpdate.Name, contract.ApplyJob{Definition: definition(on)}),
		s.update(contract.ApplyJobUpdate.Name, contract.ApplyJob{Definition: definition(on)}), // the same
		s.update(contract.PauseJobUpdate.Name, contract.RunRequest{}),
		s.update(contract.ResumeJobUpdate.Name, contract.RunRequest{}),
		s.update(contract.DeleteJobUpdate.Name, contract.RunRequest{}),
	}
	s.execute()
	for _, a := range answers {
		require.NoError(t, a.Err)
		j := a.Value.(job.Job)
		require.Len(t, j.Versions, 2)
		require.Nil(t, j.Versions[0].Definition)
		require.Equal(t, []string{"pushed"}, j.Definition().Events())
		require.Equal(t, []string{"pushed"}, j.Events)
	}
}

func TestAJobCountsTheVersionsOfItsDefinition(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	tooEarly := s.update(contract.PauseJobUpdate.Name, contract.RunRequest{By: "ada"})
	first := s.update(contract.ApplyJobUpdate.Name, contract.ApplyJob{Definition: definition(nil), By: "ada"})
	same := s.update(contract.ApplyJobUpdate.Name, contract.ApplyJob{Definition: definition(nil), By: "bob"})
	second := s.update(contract.ApplyJobUpdate.Name, contract.ApplyJob{Definition: definition(one), By: "bob", Expected: 1})
	outdated := s.update(contract.ApplyJobUpdate.Name, contract.ApplyJob{Definition: definition(nil), Expected: 1})
	paused := s.update(contract.PauseJobUpdate.Name, contract.RunRequest{By: "ada", Reason: "new disks"})
	twice := s.update(contract.PauseJobUpdate.Name, contract.RunRequest{By: "ada"})
	resumed := s.update(contract.ResumeJobUpdate.Name, contract.RunRequest{By: "bob"})
	deleted := s.update(contract.DeleteJobUpdate.Name, contract.RunRequest{By: "ada"})
	s.execute()
	require.True(t, tooEarly.Refused)
	require.Equal(t, 1, versionOf(t, first))
	require.Equal(t, 1, versionOf(t, same))
	require.Equal(t, 2, versionOf(t, second))
	var application *temporal.ApplicationError
	require.True(t, errors.As(outdated.Err, &application))
	require.Equal(t, contract.Outdated, application.Type())
	decision := paused.Value.(job.Job).Paused
	require.Equal(t, "ada", decision.By)
	require.Equal(t, "new disks", decision.Reason)
	require.ErrorContains(t, twice.Err, "paused already")
	require.IsType(t, &temporal.ApplicationError{}, twice.Err, "its type tells the gateway that it is no failure")
	require.Nil(t, resumed.Value.(job.Job).Paused)
	require.NoError(t, deleted.Err)
	require.NoError(t, s.env.GetWorkflowError(), "the workflow of a deleted job ends")
	require.Empty(t, s.kept, "a job without schedules never had any")
}

func TestRunsWaitForTheEndOfOthers(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	s.update(contract.ApplyJobUpdate.Name, contract.ApplyJob{Definition: definition(one)})
	s.begins("a")
	s.begins("b")
	s.ends("a")
	s.begins("c")
	s.then(func() { require.Equal(t, []string{"a", "b"}, s.runs()) })
	s.update(contract.ApplyJobUpdate.Name, contract.ApplyJob{Definition: definition(nil)})
	s.then(func() { require.Equal(t, []string{"a", "b", "c"}, s.runs(), "nothing bounds them any more") })
	s.execute()
}

func TestARunThatEndedWithoutAWordDoesNotBlockOthers(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	s.update(contract.ApplyJobUpdate.Name, contract.ApplyJob{Definition: definition(one)})
	s.begins("a")
	s.begins("b")
	s.at += 10 * time.Minute
	s.then(func() {
		require.Equal(t, []string{"a"}, s.runs())
		s.gone = []string{"a"}
	})
	s.at += 10 * time.Minute
	s.then(func() { require.Equal(t, []string{"a", "b"}, s.runs()) })
	s.execute()
}

func TestADeletedJobLetsItsRunsGoAndDropsItsSchedules(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	s.update(contract.ApplyJobUpdate.Name, contract.ApplyJob{Definition: definition(func(d *api.JobDefinition) {
		one(d)
		hourly(d)
	})})
	s.begins("a")
	s.begins("b")
	s.update(contract.PauseJobUpdate.Name, contract.RunRequest{})
	s.update(contract.DeleteJobUpdate.Name, contract.RunRequest{})
	s.execute()
	require.NoError(t, s.env.GetWorkflowError())
	require.Equal(t, []string{"a", "b"}, s.runs())
	require.Len(t, s.kept, 3)
	require.Equal(t, []bool{false, true, true}, []bool{s.kept[0].Paused, s.kept[1].Paused, s.kept[2].Paused})
	require.Equal(t, []int{0, 1, 1}, []int{s.kept[0].Had, s.kept[1].Had, s.kept[2].Had})
	require.Nil(t, s.kept[2].Definition)
}

func TestAJobWithALongHistoryContinuesAsNew(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	s.update(contract.ApplyJobUpdate.Name, contract.ApplyJob{Definition: definition(one)})
	s.begins("a")
	s.begins("b")
	s.then(func() { s.env.SetCurrentHistoryLength(2000) })
	s.execute()
	var next *workflow.ContinueAsNewError
	require.True(t, errors.As(s.env.GetWorkflowError(), &next))
	var input contract.JobInput
	require.NoError(t, contract.Payloads.FromPayloads(next.Input, &input))
	require.Equal(t, []string{"a", "b"}, input.Carried.Holders())
	require.Equal(t, 1, input.Carried.Version)
}

// TestWhatIsNewerTakesThePlaceOfSchedulesThatCannotBeWritten has a first version that Temporal refuses, or that cannot
// be written for another reason.
func TestWhatIsNewerTakesThePlaceOfSchedulesThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	for name, wrong := range map[string]error{
		"refused":      temporal.NewNonRetryableApplicationError("no day 8", contract.Refused, nil),
		"not answered": errors.New("no day 8"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScenario(t)
			s.keep = func(in contract.ScheduleJob) error {
				if in.Definition != nil && in.Version == 1 {
					return wrong
				}
				return nil
			}
			unscheduled := func() string {
				value, err := s.env.QueryWorkflow(contract.JobQuery.Name)
				require.NoError(t, err)
				var j job.Job
				require.NoError(t, value.Get(&j))
				return j.Unscheduled
			}
			s.update(contract.ApplyJobUpdate.Name, contract.ApplyJob{Definition: definition(hourly)})
			s.at += 30 * time.Minute
			s.then(func() {
				require.Equal(t, "no day 8", unscheduled())
				require.Greater(t, len(s.kept), 2, "it is tried again")
			})
			s.update(contract.ApplyJobUpdate.Name, contract.ApplyJob{Definition: definition(func(d *api.JobDefinition) {
				hourly(d)
				one(d)
			})})
			s.at += time.Second - time.Minute
			s.then(func() {
				require.Equal(t, 2, s.kept[len(s.kept)-1].Version)
				require.Empty(t, unscheduled())
			})
			s.update(contract.DeleteJobUpdate.Name, contract.RunRequest{})
			s.execute()
			require.NoError(t, s.env.GetWorkflowError())
			require.Nil(t, s.kept[len(s.kept)-1].Definition)
		})
	}
}

// TestAJobIsDeletedWhileItsSchedulesCannotBeWritten does not wait for the next try.
func TestAJobIsDeletedWhileItsSchedulesCannotBeWritten(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	tries := 0
	s.keep = func(in contract.ScheduleJob) error {
		if in.Definition != nil {
			return errors.New("no day 8")
		}
		if tries++; tries < 3 {
			return temporal.NewNonRetryableApplicationError("not now", contract.Refused, nil)
		}
		return nil
	}
	s.update(contract.ApplyJobUpdate.Name, contract.ApplyJob{Definition: definition(hourly)})
	s.update(contract.DeleteJobUpdate.Name, contract.RunRequest{})
	s.at += time.Hour
	s.execute()
	require.NoError(t, s.env.GetWorkflowError())
	require.Equal(t, 3, tries, "it ends when they are gone")
}

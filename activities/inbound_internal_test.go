package activities

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/sdk/api"
)

// What an event holds may be in the reason why it fails, which is kept for each try.
func TestProblemsOfEventsAreShort(t *testing.T) {
	t.Parallel()
	d := NewDispatcher(placesIn(api.ClusterConfig{}), nil)
	definition := &api.JobDefinition{Cluster: "c", On: []api.JobTrigger{{Event: &api.EventTrigger{Type: "t",
		Where: "event.data.m[event.data.k] == 1"}}}}
	d.keep(jobsOn{"acme", "t"}, triggered{jobs: []triggeredJob{{name: api.Qualify("acme", "j"), definition: definition,
		plan: &job.Plan{}}}, until: time.Now().Add(time.Hour)})
	in := contract.DispatchEvent{ID: api.Qualify("acme", "e"), Event: api.Envelope{Attributes: map[string]string{"type": "t",
		"tenant": "acme"}}, Data: fmt.Appendf(nil, `{"m": {}, "k": %q}`, strings.Repeat("k", 240<<10))}
	answer, err := d.DispatchEvent(t.Context(), in)
	require.NoError(t, err)
	require.Contains(t, answer.Problem, "job "+api.Qualify("acme", "j"))
	require.Less(t, len(answer.Problem), 2<<10)
	require.Equal(t, "c", answer.Cluster)

	d.places = placesIn(api.ClusterConfig{Tenants: []string{"beta"}})
	answer, err = d.DispatchEvent(t.Context(), in)
	require.NoError(t, err)
	require.Empty(t, answer.Cluster, "a cluster that is for others is not told")
}

// placesIn are those of a cluster c.
func placesIn(config api.ClusterConfig) *ClusterPlaces {
	view := contract.ClusterView{Cluster: cluster.Cluster{Config: config}}
	return &ClusterPlaces{views: views{of: map[string]*sharedView{"c": {view: view, began: time.Now().Add(time.Hour),
		turn: make(chan struct{}, 1)}}}}
}

// A dispatch by REST has this bound too.
func TestInputsThatAnEventGivesAreBounded(t *testing.T) {
	t.Parallel()
	d := NewDispatcher(placesIn(api.ClusterConfig{}), nil)
	definition := &api.JobDefinition{Cluster: "c", On: []api.JobTrigger{{Event: &api.EventTrigger{Type: "t",
		Inputs: []byte(`{"all": "${event.data}"}`)}}}}
	d.keep(jobsOn{"acme", "t"}, triggered{jobs: []triggeredJob{{name: api.Qualify("acme", "j"), definition: definition,
		plan: &job.Plan{}}}, until: time.Now().Add(time.Hour)})
	in := contract.DispatchEvent{ID: api.Qualify("acme", "e"), Event: api.Envelope{Attributes: map[string]string{"type": "t",
		"tenant": "acme"}}, Data: fmt.Appendf(nil, `{"k": %q}`, strings.Repeat("k", job.MaxInputsBytes))}
	answer, err := d.DispatchEvent(t.Context(), in)
	require.NoError(t, err)
	require.Contains(t, answer.Problem, "at most 64 KiB are allowed")
	require.Empty(t, answer.Dispatches)
}

// Definitions are large, and an event of another type has those of other jobs.
func TestWhatEventsStartIsNotKeptForLong(t *testing.T) {
	t.Parallel()
	d := NewDispatcher(nil, nil)
	now := time.Now()
	d.keep(jobsOn{"acme", "a"}, triggered{until: now.Add(-time.Second)})
	d.keep(jobsOn{"acme", "b"}, triggered{until: now.Add(time.Hour)})
	d.keep(jobsOn{"beta", "a"}, triggered{until: now.Add(time.Hour)})
	require.Len(t, d.jobs, 2)
	_, fresh := d.known(jobsOn{"acme", "b"})
	require.True(t, fresh)
}

// Reading what an event type starts asks each job. While it takes long, it is done rarely, and no event waits for it
// within a workflow task.
func TestReadingTriggersIsRare(t *testing.T) {
	t.Parallel()
	d := NewDispatcher(nil, nil)
	turn, err := d.reading.take(t.Context(), "acme")
	require.NoError(t, err)
	_, err = d.triggered(t.Context(), jobsOn{"acme", "t"})
	require.ErrorIs(t, err, errTurn, "as it is, so that the event waits by a timer")
	turn.done()

	synctest.Test(t, func(t *testing.T) {
		d := NewDispatcher(&ClusterPlaces{Control: &Control{Client: slowLists{}}}, nil)
		_, err := d.triggered(t.Context(), jobsOn{"acme", "t"})
		require.NoError(t, err)
		require.Equal(t, lookRest*triggersKept/2, time.Until(d.jobs[jobsOn{"acme", "t"}].until))
	})
}

// slowLists is a Temporal that takes half of triggersKept to list nothing.
type slowLists struct{ client.Client }

func (slowLists) ListWorkflow(
	context.Context, *workflowservice.ListWorkflowExecutionsRequest,
) (*workflowservice.ListWorkflowExecutionsResponse, error) {
	<-time.After(triggersKept / 2)
	return &workflowservice.ListWorkflowExecutionsResponse{}, nil
}

package activities

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/job"
	"mainstay.dev/mainstay/mesh"
)

// What an event holds may be in the reason why it fails, which is kept for each try.
func TestProblemsOfEventsAreShort(t *testing.T) {
	t.Parallel()
	d := NewDispatcher(nil, nil)
	definition := &job.Definition{Cluster: "c", On: []job.Trigger{{Event: &job.EventTrigger{Type: "t",
		Where: "event.data.m[event.data.k] == 1"}}}}
	d.keep(jobsOn{"acme", "t"}, triggered{jobs: []triggeredJob{{name: fleet.Qualify("acme", "j"), definition: definition,
		plan: &job.Plan{}}}, until: time.Now().Add(time.Hour)})
	in := contract.DispatchEvent{ID: fleet.Qualify("acme", "e"), Event: mesh.Envelope{Attributes: map[string]string{"type": "t",
		"tenant": "acme"}}, Data: fmt.Appendf(nil, `{"m": {}, "k": %q}`, strings.Repeat("k", 240<<10))}
	answer, err := d.DispatchEvent(t.Context(), in)
	require.NoError(t, err)
	require.Contains(t, answer.Problem, "job "+fleet.Qualify("acme", "j"))
	require.Less(t, len(answer.Problem), 2<<10)
}

// A dispatch by REST has this bound too.
func TestInputsThatAnEventGivesAreBounded(t *testing.T) {
	t.Parallel()
	d := NewDispatcher(nil, nil)
	definition := &job.Definition{Cluster: "c", On: []job.Trigger{{Event: &job.EventTrigger{Type: "t",
		Inputs: []byte(`{"all": "${event.data}"}`)}}}}
	d.keep(jobsOn{"acme", "t"}, triggered{jobs: []triggeredJob{{name: fleet.Qualify("acme", "j"), definition: definition,
		plan: &job.Plan{}}}, until: time.Now().Add(time.Hour)})
	in := contract.DispatchEvent{ID: fleet.Qualify("acme", "e"), Event: mesh.Envelope{Attributes: map[string]string{"type": "t",
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

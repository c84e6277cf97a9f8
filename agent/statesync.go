package agent

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/protocol"
)

// stateTimeout bounds sending the state; the hub repeats its command.
const stateTimeout = 5 * time.Second

// maxTaskStates bounds the tasks in an agent's own entry.
const maxTaskStates = 200

// watchState makes the run send the state's summary soon after a change.
func (r *run) watchState() {
	if s := r.agent.options.State; s != nil {
		s.mu.Lock()
		s.wrote = func() { r.pollWithin(checkpointSpacing) }
		s.mu.Unlock()
	}
}

// takeStateRole sets who may write the state, and this agent's targets.
func (r *run) takeStateRole(c protocol.Command) {
	s := r.agent.options.State
	if s == nil {
		return
	}
	s.mu.Lock()
	s.role, s.epoch = c.Role, c.Epoch
	s.mu.Unlock()
	s.setOwn(fleet.StateTargets, r.agent.options.ID, c.Targets, len(c.Targets) == 0, c.Epoch)
}

// obeyState answers a command about the state. It runs beside the polls.
func (r *run) obeyState(c protocol.Command) {
	s := r.agent.options.State
	if s == nil {
		return
	}
	report := protocol.StateReport{Request: c.Request, CapturedAt: time.Now().UTC()}
	switch {
	case c.Type == protocol.CommandSync:
		if err := s.take(c.Entries, c.Refs); err != nil {
			report.Error = err.Error()
		}
		r.pollWithin(checkpointSpacing)
	case len(c.Refs) > 0:
		s.mu.Lock()
		report.Entries = s.table.Entries(c.Refs)
		s.mu.Unlock()
	default:
		r.tellTasks(s)
		s.mu.Lock()
		report.Manifest = s.table.Manifest()
		s.mu.Unlock()
	}
	report.State = s.Summary()
	at := r.sessionNow()
	err := r.client.send(r.work, r.client.calls, request{
		hub:     at.hub,
		method:  http.MethodPost,
		path:    r.client.path(protocol.StatePath, ""),
		token:   at.token,
		body:    report,
		timeout: stateTimeout,
	}, nil)
	if err != nil {
		r.agent.log.Debug("The hub did not take the state; it asks again if it wants it", "error", err)
	}
}

// tellTasks writes the agent's running tasks into its own entry.
func (r *run) tellTasks(s *State) {
	var tasks []fleet.TaskState
	r.mu.Lock()
	for key, at := range r.attempts {
		if !at.reported {
			tasks = append(tasks, fleet.TaskState{TaskID: key.task, Attempt: key.number, Type: at.task.Type,
				StartedAt: at.startedAt.UTC()})
		}
	}
	epoch := r.role.Epoch
	r.mu.Unlock()
	slices.SortFunc(tasks, func(a, b fleet.TaskState) int { return strings.Compare(a.TaskID, b.TaskID) })
	tasks = tasks[:min(len(tasks), maxTaskStates)]
	s.setOwn(fleet.StateTasks, r.agent.options.ID, tasks, len(tasks) == 0, epoch)
}

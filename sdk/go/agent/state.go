package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// ErrStandby is the error of a write by a standby: only the leader writes.
var ErrStandby = errors.New(
	"agent: a standby does not write the cluster's state: the leader does, and a state sync brings it here")

// State is the state that an agent shares with its active_passive or sharded cluster. The leader writes it, or in a
// sharded cluster any member, and state syncs bring it to the other members, so a promoted agent has what the leader
// had. Give it to an agent as Options.State. All methods may be called from any goroutine, before, while and after the
// agent runs.
//
//	state := agent.NewState()
//	state.OnChange = func(c agent.StateChange) { reload(c.Key) }
//	a, err := agent.New(agent.Options{…, State: state})
//	err = state.SetConfiguration("retention", 30)
//
// An entry written before the agent has a role is a default: any leader's entry wins over it.
type State struct {
	// OnChange is called with entries that a sync brought or removed, in the order in which they came. Set it before
	// the agent runs. It must return promptly.
	OnChange func(StateChange)

	taking sync.Mutex // held while OnChange is called, so that changes come in order
	mu     sync.Mutex
	table  api.StateTable
	role   api.Role
	epoch  int64
	wrote  func() // reports to the run that the state changed; nil while there is none
	digest string // of the table; empty: the table changed since
	// mine is what this agent last wrote as its own entries: a sync's copy does not win over it.
	mine map[api.StateRef]ownEntry
}

// ownEntry is what an agent says of itself.
type ownEntry struct {
	value json.RawMessage
	epoch int64
}

// StateChange is one entry that a sync brought.
type StateChange struct {
	Section api.StateSection
	Key     string
	Value   json.RawMessage // nil: it was removed
}

// NewState makes an empty state.
func NewState() *State { return &State{} }

// SetConfiguration writes an entry of the configuration: any value that JSON can have, up to 32 KiB.
func (s *State) SetConfiguration(key string, value any) error {
	return s.write(api.StateConfiguration, key, value)
}

// RemoveConfiguration removes an entry of the configuration.
func (s *State) RemoveConfiguration(key string) error {
	return s.remove(api.StateConfiguration, key)
}

// Configuration returns a copy of the configuration.
func (s *State) Configuration() map[string]json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := map[string]json.RawMessage{}
	for key, e := range s.table.Section(api.StateConfiguration) {
		found[key] = slices.Clone(e.Value)
	}
	return found
}

// SetDigest writes the digest of something that the agent has cached, such as an image.
func (s *State) SetDigest(key, digest string) error { return s.write(api.StateDigests, key, digest) }

// RemoveDigest removes the digest of something cached.
func (s *State) RemoveDigest(key string) error { return s.remove(api.StateDigests, key) }

// Digests returns a copy of the cached digests.
func (s *State) Digests() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := map[string]string{}
	for key, e := range s.table.Section(api.StateDigests) {
		var digest string
		if json.Unmarshal(e.Value, &digest) == nil {
			found[key] = digest
		}
	}
	return found
}

// Targets returns the deployment targets that an agent of the cluster had when it last wrote its state.
func (s *State) Targets(agentID string) []string {
	return own[[]string](s, api.StateTargets, agentID)
}

// Tasks returns what an agent of the cluster ran at the last state sync.
func (s *State) Tasks(agentID string) []api.TaskState {
	return own[[]api.TaskState](s, api.StateTasks, agentID)
}

// Summary describes the state in short: states with the same digest are the same.
func (s *State) Summary() api.StateSummary {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.table.Summary()
}

func own[T any](s *State, section api.StateSection, agentID string) T {
	s.mu.Lock()
	defer s.mu.Unlock()
	var value T
	if e, known := s.table.Get(api.StateRef{Section: section, Key: agentID}); known {
		_ = json.Unmarshal(e.Value, &value) // another agent's entry may be anything
	}
	return value
}

func (s *State) write(section api.StateSection, key string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("agent: encode a state entry: %w", err)
	}
	return s.change(func() (bool, error) {
		if s.role == api.RoleStandby {
			return false, ErrStandby
		}
		return s.table.Write(api.StateRef{Section: section, Key: key}, data, s.epoch)
	})
}

func (s *State) remove(section api.StateSection, key string) error {
	return s.change(func() (bool, error) {
		if s.role == api.RoleStandby {
			return false, ErrStandby
		}
		return s.table.Remove(api.StateRef{Section: section, Key: key}, s.epoch)
	})
}

// change changes the table with do, and notifies the hub soon if the table changed.
func (s *State) change(do func() (bool, error)) error {
	s.mu.Lock()
	changed, err := do()
	wrote := s.wrote
	if changed {
		s.digest = ""
	}
	s.mu.Unlock()
	if err != nil && !errors.Is(err, ErrStandby) {
		err = fmt.Errorf("agent: %w", err)
	}
	if changed && wrote != nil {
		wrote()
	}
	return err
}

// setOwn writes the agent's own entry. An empty value over no entry writes nothing.
func (s *State) setOwn(section api.StateSection, agentID string, value any, empty bool, epoch int64) error {
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("agent: encode a state entry: %w", err)
	}
	return s.change(func() (bool, error) {
		ref := api.StateRef{Section: section, Key: agentID}
		if s.mine == nil {
			s.mine = map[api.StateRef]ownEntry{}
		}
		s.mine[ref] = ownEntry{data, epoch}
		if _, known := s.table.Get(ref); empty && !known {
			return false, nil
		}
		return s.table.Write(ref, data, epoch)
	})
}

// take applies the entries of a sync, and drops those that it names. Over a newer copy of this agent's own entry, which
// an earlier process or somebody else wrote, it writes its own again.
func (s *State) take(entries []api.StateEntry, forget []api.StateRef) error {
	s.taking.Lock()
	defer s.taking.Unlock()
	var changes []StateChange
	var first error
	s.mu.Lock()
	for _, e := range entries {
		changed, err := s.table.Put(e)
		own, overtaken := s.mine[e.StateRef]
		if overtaken = overtaken && changed; overtaken {
			s.digest = ""
			_, err = s.table.Write(e.StateRef, own.value, own.epoch)
		}
		if err != nil && first == nil {
			first = err
		}
		if changed && !overtaken {
			changes = append(changes, StateChange{Section: e.Section, Key: e.Key, Value: slices.Clone(e.Value)})
		}
	}
	for _, ref := range forget {
		if s.table.Forget(ref) {
			changes = append(changes, StateChange{Section: ref.Section, Key: ref.Key})
		}
	}
	if len(changes) > 0 {
		s.digest = ""
	}
	told := s.OnChange
	s.mu.Unlock()
	for _, c := range changes {
		if told != nil {
			told(c)
		}
	}
	return first
}

// summaryUnless describes the state in short; nil if the hub knows its digest.
func (s *State) summaryUnless(told string) *api.StateSummary {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.digest != "" && s.digest == told {
		return nil
	}
	summary := s.table.Summary()
	s.digest = summary.Digest
	if s.digest == told {
		return nil
	}
	return &summary
}

// stateTimeout bounds sending the state; the hub repeats its command.
const stateTimeout = 5 * time.Second

// maxTaskStates bounds the tasks in an agent's own entry.
const maxTaskStates = 200

// watchState makes the run send the state's summary soon after a change.
func (r *run) watchState() {
	if s := r.agent.options.State; s != nil {
		s.mu.Lock()
		s.wrote, s.mine = func() { r.pollWithin(checkpointSpacing) }, nil
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
	r.logOwn(s.setOwn(api.StateTargets, r.agent.options.ID, c.Targets, len(c.Targets) == 0, c.Epoch))
}

func (r *run) logOwn(err error) {
	if err != nil {
		r.agent.log.Warn("The agent's own entry of the cluster's state was not written; others see the last one",
			"error", err)
	}
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
	var tasks []api.TaskState
	r.mu.Lock()
	for key, at := range r.attempts {
		if !at.reported {
			tasks = append(tasks, api.TaskState{TaskID: key.task, Attempt: key.number, Type: at.task.Type,
				StartedAt: at.startedAt.UTC()})
		}
	}
	epoch := r.role.Epoch
	r.mu.Unlock()
	slices.SortFunc(tasks, func(a, b api.TaskState) int { return strings.Compare(a.TaskID, b.TaskID) })
	tasks = tasks[:min(len(tasks), maxTaskStates)]
	r.logOwn(s.setOwn(api.StateTasks, r.agent.options.ID, tasks, len(tasks) == 0, epoch))
}

package hub

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/protocol"
)

const (
	// stateAnswer is how long an agent has to answer a command about its state.
	stateAnswer = 5 * time.Second
	// manifestFresh is how long a manifest is good for comparing after it was read.
	manifestFresh = 30 * time.Second
)

// stateAsk is a command about the state that waits for its answer. The hub's mutex guards the hub's map of them.
type stateAsk struct {
	agent  string
	answer chan protocol.StateReport // buffered
}

// manifest is what an agent had when it was last asked.
type manifest struct {
	lines []fleet.StateLine
	at    time.Time
}

// takeState hands an agent's report to whoever waits for it.
func (h *Hub) takeState(_ context.Context, in *stateInput) (*stateOutput, error) {
	claims, err := h.authorize(in.Authorized)
	if err != nil {
		return nil, err
	}
	if err := validateReport(&in.Body); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	s, err := h.find(claims)
	if err != nil {
		return nil, err
	}
	out := &stateOutput{}
	ask := h.stateAsks[in.Body.Request]
	if ask == nil || ask.agent != s.agent {
		return out, nil
	}
	delete(h.stateAsks, in.Body.Request)
	ask.answer <- in.Body
	out.Body.Awaited = true
	return out, nil
}

func validateReport(r *protocol.StateReport) error {
	if err := r.State.Validate(); err != nil {
		return invalidField("state", err)
	}
	for i := range r.Manifest {
		if err := r.Manifest[i].Validate(); err != nil {
			return invalidField("manifest", err)
		}
	}
	for i := range r.Entries {
		if err := r.Entries[i].Validate(); err != nil {
			return invalidField("entries", err)
		}
	}
	return nil
}

// askState sends a session's agent a command about its state and waits for the answer. ok is false when none came.
func (h *Hub) askState(ctx context.Context, agent string, c protocol.Command) (protocol.StateReport, bool) {
	ask := &stateAsk{agent: agent, answer: make(chan protocol.StateReport, 1)}
	c.Request = uuid.NewString()
	h.mu.Lock()
	s := h.sessions[agent]
	if s == nil || s.state == nil {
		h.mu.Unlock()
		return protocol.StateReport{}, false
	}
	h.stateAsks[c.Request] = ask
	s.command(c)
	h.mu.Unlock()
	limit := time.NewTimer(stateAnswer)
	defer limit.Stop()
	select {
	case report := <-ask.answer:
		return report, true
	case <-limit.C:
	case <-ctx.Done():
	case <-h.run.Done():
	}
	h.mu.Lock()
	delete(h.stateAsks, c.Request)
	h.mu.Unlock()
	return protocol.StateReport{}, false
}

// readStates tells what the hub's agents of a cluster have: from their heartbeats, or by asking each for its manifest.
func (h *Hub) readStates(ctx context.Context, in contract.ReadStatesInput) (contract.ReadStatesResult, error) {
	result := h.statesOf(in.Cluster)
	if !in.Manifests {
		return result, nil
	}
	manifests := make([]*fleet.AgentManifest, len(result.Agents))
	h.eachKeeper(result.Agents, func(i int, agent string) {
		lines, ok := h.readManifest(ctx, agent)
		if !ok {
			result.Agents[i].Silent = true
			return
		}
		summary := fleet.SummaryOf(lines)
		result.Agents[i].State = &summary
		manifests[i] = &fleet.AgentManifest{AgentID: agent, Lines: lines}
	})
	known := make([]fleet.AgentManifest, 0, len(manifests))
	for _, m := range manifests {
		switch {
		case m == nil:
		case m.AgentID == in.First:
			known = slices.Insert(known, 0, *m)
		default:
			known = append(known, *m)
		}
	}
	result.Merged = fleet.MergeManifests(known, func(string) bool { return true }) // who is a member, the workflow knows
	return result, nil
}

// statesOf lists the hub's agents of a cluster with what their heartbeats told, sorted.
func (h *Hub) statesOf(cluster string) contract.ReadStatesResult {
	h.mu.Lock()
	defer h.mu.Unlock()
	var result contract.ReadStatesResult
	for _, s := range h.sessions {
		if s.cluster == cluster {
			result.Agents = append(result.Agents, contract.AgentState{AgentID: s.agent, State: s.state})
		}
	}
	slices.SortFunc(result.Agents, func(a, b contract.AgentState) int { return strings.Compare(a.AgentID, b.AgentID) })
	return result
}

// eachKeeper does something for each agent that keeps state, at the same time.
func (h *Hub) eachKeeper(agents []contract.AgentState, do func(i int, agent string)) {
	var all sync.WaitGroup
	for i := range agents {
		if agents[i].State != nil {
			all.Go(func() { do(i, agents[i].AgentID) })
		}
	}
	all.Wait()
}

// readManifest asks an agent what it has, and remembers it for comparing.
func (h *Hub) readManifest(ctx context.Context, agent string) ([]fleet.StateLine, bool) {
	report, ok := h.askState(ctx, agent, protocol.Command{Type: protocol.CommandState})
	if !ok {
		return nil, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.sessions[agent]; s != nil {
		s.manifest = &manifest{lines: report.Manifest, at: time.Now()}
	}
	return report.Manifest, true
}

// compareStates tells what the hub's agents lack of what they should have. It takes what readStates has just read.
func (h *Hub) compareStates(ctx context.Context, in contract.CompareStatesInput) (contract.CompareStatesResult, error) {
	agents := h.statesOf(in.Cluster).Agents
	diffs := make([]fleet.StateDiff, len(agents))
	h.eachKeeper(agents, func(i int, agent string) {
		h.mu.Lock()
		var known *manifest
		if s := h.sessions[agent]; s != nil && s.manifest != nil && time.Since(s.manifest.at) < manifestFresh {
			known = s.manifest
		}
		h.mu.Unlock()
		if known != nil {
			diffs[i] = fleet.DiffState(in.Want, known.lines)
		} else if lines, ok := h.readManifest(ctx, agent); ok {
			diffs[i] = fleet.DiffState(in.Want, lines)
		}
	})
	var result contract.CompareStatesResult
	missing, extra := map[fleet.StateRef]bool{}, map[fleet.StateRef]bool{}
	for i := range diffs {
		d := &diffs[i]
		if len(d.Missing)+len(d.Extra) > 0 {
			result.Lagging = append(result.Lagging, contract.AgentLag{AgentID: agents[i].AgentID, Behind: d.Behind()})
		}
		for _, ref := range d.Missing {
			missing[ref] = true
		}
		for _, ref := range d.Extra {
			extra[ref] = true
		}
	}
	result.Missing, result.Extra = sortedRefs(missing), sortedRefs(extra)
	return result, nil
}

func sortedRefs(set map[fleet.StateRef]bool) []fleet.StateRef {
	var refs []fleet.StateRef
	for ref := range set {
		refs = append(refs, ref)
	}
	slices.SortFunc(refs, func(a, b fleet.StateRef) int {
		return strings.Compare(string(a.Section)+"\x00"+a.Key, string(b.Section)+"\x00"+b.Key)
	})
	return refs
}

// readEntries reads entries from one agent.
func (h *Hub) readEntries(ctx context.Context, in contract.ReadEntriesInput) (contract.ReadEntriesResult, error) {
	report, ok := h.askState(ctx, in.AgentID, protocol.Command{Type: protocol.CommandState, Refs: in.Refs})
	return contract.ReadEntriesResult{Entries: report.Entries, Silent: !ok}, nil
}

// applyState hands entries to agents and waits until each has taken them.
func (h *Hub) applyState(ctx context.Context, in contract.ApplyStateInput) (contract.ApplyStateResult, error) {
	failed := make([]string, len(in.Agents))
	var all sync.WaitGroup
	for i, agent := range in.Agents {
		all.Go(func() {
			report, ok := h.askState(ctx, agent, protocol.Command{Type: protocol.CommandSync, Entries: in.Entries, Refs: in.Forget})
			if failed[i] = report.Error; !ok {
				failed[i] = "the agent did not answer"
			}
		})
	}
	all.Wait()
	var result contract.ApplyStateResult
	for i, why := range failed {
		if why != "" {
			result.Failed = append(result.Failed, contract.StateRefusal{AgentID: in.Agents[i], Why: why})
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, agent := range in.Agents {
		if s := h.sessions[agent]; s != nil {
			s.manifest = nil
		}
	}
	return result, nil
}

type stateInput struct {
	Authorized
	Body protocol.StateReport
}
type stateOutput struct{ Body protocol.StateTaken }

// Package statesync reads and writes the states of a hub's agents, and notifies their clusters of changes.
package statesync

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/hub/part"
	"mainstay.dev/mainstay/internal/parallel"
	"mainstay.dev/mainstay/internal/statesync"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

const (
	// answerTime is how long an agent has to answer a command about its state.
	answerTime = 5 * time.Second
	// epochSlack is how far an entry's epoch may lie above the newest that the hub knows: it may know of a role late,
	// or of a new cluster with an old one's name.
	epochSlack = 1 << 20
)

// Facts are what the states need of the hub.
type Facts interface {
	// States returns the agents of a cluster with a session here, with the state summaries of their heartbeats, sorted.
	States(cluster string) []contract.AgentState
	// Digests returns the digests of agents with a session here, by cluster, without clusters whose agents all have the
	// same.
	Digests() map[string][]string
	// CommandKeeper sends an agent a command. It reports false when the agent has no session here or keeps no state.
	CommandKeeper(agent string, c protocol.Command) bool
	// EpochOf returns the newest epoch that the hub knows for an agent's cluster; 0 without a session.
	EpochOf(agent string) int64
}

// States reads and writes the states of a hub's agents. Its methods may be called from any goroutine.
type States struct {
	hub     part.Hub
	facts   Facts
	spacing time.Duration
	changed atomic.Bool // since Run looked

	mu       sync.Mutex
	asks     map[string]*ask     // by request
	notified map[string]notified // by cluster
}

// New makes the states of a hub. spacing is the least time between two signals to a cluster.
func New(hub part.Hub, facts Facts, spacing time.Duration) *States {
	return &States{hub: hub, facts: facts, spacing: spacing, asks: map[string]*ask{}, notified: map[string]notified{}}
}

// ask is a command about the state that waits for its answer.
type ask struct {
	agent  string
	answer chan protocol.StateReport // buffered
}

// Answer hands an agent's report to the request that waits for it. It reports false when none does.
func (s *States) Answer(agent string, report protocol.StateReport) (awaited bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.asks[report.Request]
	if a == nil || a.agent != agent {
		return false
	}
	delete(s.asks, report.Request)
	a.answer <- report
	return true
}

// ask sends an agent a command about its state and waits for the answer. ok is false when none came.
func (s *States) ask(ctx context.Context, agent string, c protocol.Command) (report protocol.StateReport, ok bool) {
	a := &ask{agent: agent, answer: make(chan protocol.StateReport, 1)}
	c.Request = uuid.NewString()
	s.mu.Lock()
	s.asks[c.Request] = a
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.asks, c.Request)
	}()
	if !s.facts.CommandKeeper(agent, c) {
		return protocol.StateReport{}, false
	}
	limit := time.NewTimer(answerTime)
	defer limit.Stop()
	select {
	case report = <-a.answer:
		return report, true
	case <-limit.C:
	case <-ctx.Done():
	}
	return protocol.StateReport{}, false
}

// Read returns the states of the hub's agents of a cluster: summaries from their heartbeats, or manifests that it asks
// for.
func (s *States) Read(ctx context.Context, in contract.ReadStatesInput) (contract.ReadStatesResult, error) {
	result := contract.ReadStatesResult{Agents: s.facts.States(in.Cluster)}
	if !in.Manifests {
		return result, nil
	}
	var mu sync.Mutex
	merged := statesync.NewMerged(in.First)
	eachKeeper(result.Agents, func(i int, agent string) {
		lines, ok := s.readManifest(ctx, agent)
		counted := s.within(agent, lines)
		mu.Lock()
		defer mu.Unlock()
		if !ok || !merged.TakeManifest(agent, counted) { // what is too large counts as silent
			result.Agents[i].Silent = true
			return
		}
		summary := api.SummaryOf(lines)
		result.Agents[i].State = &summary
	})
	result.Merged = merged.Lines(func(string) bool { return true }) // the workflow knows who is a member
	return result, nil
}

// within returns the agent's lines whose versions are possible. Numbers count writes: one above the milliseconds since
// 1970 is invented. The bound grows with time, so that a next number follows each that was taken, for this process and
// the next one. An agent does not keep more than a state may have either.
func (s *States) within(agent string, lines []api.StateLine) []api.StateLine {
	return sift(s, agent, lines, func(l api.StateLine) api.StateLine { return l },
		bounded(api.MaxStateBytes, s.refuses(agent)))
}

// bounded also refuses lines that make the values larger together than most bytes.
func bounded(most int, refuses func(api.StateLine) string) func(api.StateLine) string {
	left := most
	return func(l api.StateLine) string {
		if l.Size < 0 || l.Size > left {
			return fmt.Sprintf("%s %q and those before it have more than %d bytes", l.Section, l.Key, most)
		}
		why := refuses(l)
		if why == "" {
			left -= l.Size
		}
		return why
	}
}

// refuses returns a function that says why a line is refused; empty when it is not.
func (s *States) refuses(agent string) func(api.StateLine) string {
	epoch, number := s.facts.EpochOf(agent)+epochSlack, time.Now().UnixMilli()
	return func(l api.StateLine) string {
		switch {
		case l.Epoch > epoch:
			return fmt.Sprintf("%s %q has the epoch %d, far above the cluster's newest", l.Section, l.Key, l.Epoch)
		case l.Number > number:
			return fmt.Sprintf("%s %q has the number %d, above that of milliseconds since 1970", l.Section, l.Key,
				l.Number)
		}
		return ""
	}
}

// sift returns the lines or entries of an agent that are not refused.
func sift[T any](
	s *States, agent string, all []T, line func(T) api.StateLine, refuses func(api.StateLine) string,
) []T {
	first := ""
	left := make([]T, 0, len(all))
	for _, one := range all {
		why := refuses(line(one))
		if why == "" {
			left = append(left, one)
		} else if first == "" {
			first = why
		}
	}
	if first != "" {
		s.hub.Logger.Warn("Entries of a cluster's state are left out", zap.String("agent", agent),
			zap.Int("entries", len(all)-len(left)), zap.String("why", first))
	}
	return left
}

// eachKeeper calls do concurrently for each agent that keeps state.
func eachKeeper(agents []contract.AgentState, do func(i int, agent string)) {
	parallel.Each(len(agents), len(agents), func(i int) {
		if agents[i].State != nil {
			do(i, agents[i].AgentID)
		}
	})
}

// readManifest asks an agent for its manifest.
func (s *States) readManifest(ctx context.Context, agent string) ([]api.StateLine, bool) {
	report, ok := s.ask(ctx, agent, protocol.Command{Type: protocol.CommandState})
	return report.Manifest, ok
}

// Compare reports what the hub's agents lack.
func (s *States) Compare(ctx context.Context, in contract.CompareStatesInput) (contract.CompareStatesResult, error) {
	agents := s.facts.States(in.Cluster)
	var mu sync.Mutex
	var result contract.CompareStatesResult
	missing, extra := map[api.StateRef]bool{}, map[api.StateRef]bool{}
	room := statesync.MaxMergedBytes // for what is extra; the rest is found again
	eachKeeper(agents, func(_ int, agent string) {
		lines, ok := s.readManifest(ctx, agent)
		if !ok {
			return
		}
		d := statesync.DiffState(in.Want, lines)
		mu.Lock()
		defer mu.Unlock()
		if len(d.Missing)+len(d.Extra) > 0 {
			result.Lagging = append(result.Lagging, contract.AgentLag{AgentID: agent, Behind: d.Behind()})
		}
		for _, ref := range d.Missing {
			missing[ref] = true
		}
		for _, ref := range d.Extra {
			if need := (api.StateLine{StateRef: ref}).Bytes(); !extra[ref] && need <= room {
				extra[ref] = true
				room -= need
			}
		}
	})
	slices.SortFunc(result.Lagging, func(a, b contract.AgentLag) int { return strings.Compare(a.AgentID, b.AgentID) })
	result.Missing, result.Extra = sortedRefs(missing), sortedRefs(extra)
	return result, nil
}

func sortedRefs(set map[api.StateRef]bool) []api.StateRef {
	return slices.SortedFunc(maps.Keys(set), api.StateRef.Compare)
}

// mostRead bounds the values of one answer of ReadEntries, which is asked for about statesync.StateChunk bytes.
const mostRead = 2 * statesync.StateChunk

// ReadEntries reads entries from one agent. It passes on only what was asked for.
func (s *States) ReadEntries(ctx context.Context, in contract.ReadEntriesInput) (contract.ReadEntriesResult, error) {
	report, ok := s.ask(ctx, in.AgentID, protocol.Command{Type: protocol.CommandState, Refs: in.Refs})
	asked := map[api.StateRef]bool{}
	for _, ref := range in.Refs {
		asked[ref] = true
	}
	refuses := bounded(mostRead, s.refuses(in.AgentID))
	entries := sift(s, in.AgentID, report.Entries, api.StateEntry.Line, func(l api.StateLine) string {
		if !asked[l.StateRef] {
			return fmt.Sprintf("%s %q was not asked for", l.Section, l.Key)
		}
		delete(asked, l.StateRef) // once
		return refuses(l)
	})
	return contract.ReadEntriesResult{Entries: entries, Silent: !ok}, nil
}

// Apply hands entries to agents and waits until each has taken them. They may come from a hub that refuses nothing. It
// asks no agent to forget its own entry.
func (s *States) Apply(ctx context.Context, in contract.ApplyStateInput) (contract.ApplyStateResult, error) {
	failed := make([]string, len(in.Agents))
	parallel.Each(len(in.Agents), len(in.Agents), func(i int) {
		agent := in.Agents[i]
		report, ok := s.ask(ctx, agent, protocol.Command{
			Type:    protocol.CommandSync,
			Entries: sift(s, agent, in.Entries, api.StateEntry.Line, s.refuses(agent)),
			Refs: slices.DeleteFunc(slices.Clone(in.Forget),
				func(ref api.StateRef) bool { return ref.Key == agent }),
		})
		if failed[i] = report.Error; !ok {
			failed[i] = "the agent did not answer"
		}
	})
	var result contract.ApplyStateResult
	for i, why := range failed {
		if why != "" {
			result.Failed = append(result.Failed, contract.StateRefusal{AgentID: in.Agents[i], Why: why})
		}
	}
	return result, nil
}

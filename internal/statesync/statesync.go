// Package statesync finds out how the states that agents keep differ, and what each lacks.
package statesync

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
)

// StateChunk is the approximate number of bytes of entries in one message.
const StateChunk = 256 << 10

// HeldLine is a line of a merged manifest, with a holder of the entry.
type HeldLine struct {
	api.StateLine
	Holder string `json:"holder"`
}

// ByOwner reports whether the holder is the agent whose own entry it is.
func (l HeldLine) ByOwner() bool { return l.Section.OfOneAgent() && l.Holder == l.Key }

// Merged has the newest write of each key among those that it took, with a holder. For an agent's own entry its own
// word counts, even if copies are newer. Among equal writes the first agent's counts, or else the one of the agent with
// the lowest id. The order of taking does not matter.
type Merged struct {
	first string
	lines map[api.StateRef]HeldLine
	bytes int
}

// NewMerged has nothing. first is the agent whose copy is preferred among equal ones: the leader.
func NewMerged(first string) *Merged {
	return &Merged{first: first, lines: map[api.StateRef]HeldLine{}}
}

// TakeManifest takes the manifest of an agent, unless its lines would then have more than MaxMergedBytes.
func (m *Merged) TakeManifest(agent string, lines []api.StateLine) (fits bool) {
	bytes := m.bytes
	for _, l := range lines {
		if _, known := m.lines[l.StateRef]; !known {
			bytes += l.Bytes()
		}
	}
	if bytes > MaxMergedBytes {
		return false
	}
	for _, l := range lines {
		m.Take(HeldLine{StateLine: l, Holder: agent})
	}
	return true
}

// Take takes a line with its holder.
func (m *Merged) Take(l HeldLine) {
	old, known := m.lines[l.StateRef]
	if !known {
		m.bytes += l.Bytes()
	}
	preferred := l.Holder == m.first || old.Holder != m.first && l.Holder < old.Holder
	switch {
	case known && old.ByOwner() != l.ByOwner():
		if l.ByOwner() {
			m.lines[l.StateRef] = l
		}
	case !known, l.Newer(old.StateLine), preferred && !old.Newer(l.StateLine):
		m.lines[l.StateRef] = l
	}
}

// Lines are the lines taken, sorted, without the own entries of agents that are no members.
//
//workflowcheck:ignore
func (m *Merged) Lines(member func(agentID string) bool) []HeldLine {
	lines := make([]HeldLine, 0, len(m.lines))
	for ref, l := range m.lines {
		if !ref.Section.OfOneAgent() || member(ref.Key) {
			lines = append(lines, l)
		}
	}
	slices.SortFunc(lines, func(a, b HeldLine) int { return a.StateRef.Compare(b.StateRef) })
	return lines
}

// MaxMergedBytes bounds the merged lines of a cluster, by their Bytes: they are in one message to Temporal.
const MaxMergedBytes = 3 << 19

// BoundHeld returns as many merged lines as a message may have, those of the first holder before others.
func BoundHeld(lines []HeldLine, first string) []HeldLine {
	var bounded []HeldLine
	bytes, fits := 0, make([]bool, len(lines))
	for _, firsts := range []bool{true, false} {
		for i, l := range lines {
			if n := l.Bytes(); (l.Holder == first) == firsts && bytes+n <= MaxMergedBytes {
				bytes += n
				fits[i] = true
			}
		}
	}
	for i, l := range lines {
		if fits[i] {
			bounded = append(bounded, l)
		}
	}
	return bounded
}

// LinesOf returns merged lines without their holders. It marks the own entries that their owners reported.
func LinesOf(held []HeldLine) []api.StateLine {
	lines := make([]api.StateLine, len(held))
	for i := range held {
		lines[i] = held[i].StateLine
		lines[i].FromOwner = held[i].ByOwner()
	}
	return lines
}

// StateDiff is what one agent lacks.
type StateDiff struct {
	// Missing are entries that it lacks or has an older write of.
	Missing []api.StateRef `json:"missing,omitempty"`
	// Extra are own entries of former members, and copies newer than the owner's report. The latter are missing too:
	// once they are dropped, the owner's is taken.
	Extra []api.StateRef `json:"extra,omitempty"`
}

// Behind is how many entries the agent lacks, without task states.
func (d *StateDiff) Behind() int {
	behind := map[api.StateRef]bool{}
	for _, refs := range [][]api.StateRef{d.Missing, d.Extra} {
		for _, ref := range refs {
			if ref.Section != api.StateTasks {
				behind[ref] = true
			}
		}
	}
	return len(behind)
}

// DiffState compares the state that an agent should have with the one that it has.
func DiffState(want, have []api.StateLine) StateDiff {
	var d StateDiff
	has := make(map[api.StateRef]api.StateLine, len(have))
	for _, l := range have {
		has[l.StateRef] = l
	}
	for _, l := range want {
		known, found := has[l.StateRef]
		if !found || l.Newer(known) {
			d.Missing = append(d.Missing, l.StateRef)
		}
		if found && l.FromOwner && known.Newer(l) {
			d.Missing = append(d.Missing, l.StateRef)
			continue // it stays in has, and so is extra
		}
		delete(has, l.StateRef)
	}
	for _, l := range api.SortedLines(have) {
		if _, extra := has[l.StateRef]; extra && l.Section.OfOneAgent() {
			d.Extra = append(d.Extra, l.StateRef)
		}
	}
	return d
}

// ChunkState cuts a list of entries into parts of about StateChunk bytes, each with entries of one holder.
func ChunkState(want []HeldLine, missing []api.StateRef) []StatePart {
	lacking := make(map[api.StateRef]bool, len(missing))
	for _, ref := range missing {
		lacking[ref] = true
	}
	var parts []StatePart
	open := map[string]int{} // index of the holder's part that is not full
	sizes := map[string]int{}
	for _, l := range want {
		if !lacking[l.StateRef] {
			continue
		}
		size := l.Size + len(l.Key) + 128
		i, found := open[l.Holder]
		if !found || sizes[l.Holder]+size > StateChunk {
			i = len(parts)
			parts = append(parts, StatePart{Holder: l.Holder})
			open[l.Holder], sizes[l.Holder] = i, 0
		}
		parts[i].Refs = append(parts[i].Refs, l.StateRef)
		sizes[l.Holder] += size
	}
	return parts
}

// StatePart has entries that travel together.
type StatePart struct {
	Holder string         `json:"holder"`
	Refs   []api.StateRef `json:"refs"`
}

// SyncState has a cluster's facts about its agents' states, and when the next sync is due.
type SyncState struct {
	// StateDigests are the hubs' reports about the states of their agents, sorted by hub.
	StateDigests []HubDigests `json:"state_digests,omitempty"`
	// SyncAt is when the next state sync is due, and Syncs how many have begun, while the states differ.
	SyncAt time.Time `json:"sync_at,omitzero"`
	Syncs  int       `json:"syncs,omitempty"`
}

// HubDigests are the distinct digests of the states of one hub's agents of a cluster.
type HubDigests struct {
	Hub     string   `json:"hub"`
	Digests []string `json:"digests"`
}

// How long the members' states may differ before a sync, or another one.
const (
	// SyncAgain and SyncAgainMax bound the waits between syncs of a cluster whose members stay different.
	SyncAgain    = 30 * time.Second
	SyncAgainMax = 10 * time.Minute
	// SyncSoon is the first wait when states changed after a sync began. While they go on changing, the waits grow to
	// SyncAgain.
	SyncSoon = 5 * time.Second
)

// SetStateDigests records a hub's report about its agents' states; none: no agent there keeps state. The first sync is
// due at once when the states differ. It reports whether they differ in a new way; see SyncSoon.
func (s *SyncState) SetStateDigests(hub string, digests []string, mode api.ReplicationMode, now time.Time) bool {
	before := slices.Clone(s.StateDigests)
	s.StateDigests = slices.DeleteFunc(s.StateDigests, func(h HubDigests) bool { return h.Hub == hub })
	if len(digests) > 0 {
		s.StateDigests = append(s.StateDigests, HubDigests{Hub: hub, Digests: digests})
		slices.SortFunc(s.StateDigests, func(a, b HubDigests) int { return strings.Compare(a.Hub, b.Hub) })
	}
	s.settleSync(mode, now)
	same := func(a, b HubDigests) bool { return a.Hub == b.Hub && slices.Equal(a.Digests, b.Digests) }
	return !s.SyncAt.IsZero() && !slices.EqualFunc(before, s.StateDigests, same)
}

// SyncSoon brings the next sync forward. Call it for states that changed after the last sync began: that sync may have
// read them before the change.
func (s *SyncState) SyncSoon(now time.Time) {
	if at := now.Add(task.Doubled(SyncSoon, s.Syncs-1, SyncAgain)); at.Before(s.SyncAt) {
		s.SyncAt = at
	}
}

// DropStateDigests forgets all hubs but those given, which have members.
func (s *SyncState) DropStateDigests(hubs []string, mode api.ReplicationMode, now time.Time) {
	n := len(s.StateDigests)
	s.StateDigests = slices.DeleteFunc(s.StateDigests, func(h HubDigests) bool { return !slices.Contains(hubs, h.Hub) })
	if len(s.StateDigests) != n {
		s.settleSync(mode, now)
	}
}

// settleSync sets when the next sync is due. An active_active cluster has none.
func (s *SyncState) settleSync(mode api.ReplicationMode, now time.Time) {
	switch {
	case s.StatesAgree() || mode == api.ActiveActive:
		s.SyncAt, s.Syncs = time.Time{}, 0
	case s.SyncAt.IsZero():
		s.SyncAt = now
	}
}

// StatesAgree reports whether all members that keep state have the same, by the hubs' reports. A hub without a report
// has no agents with state.
func (s *SyncState) StatesAgree() bool {
	first := ""
	for _, h := range s.StateDigests {
		for _, d := range h.Digests {
			first = cmp.Or(first, d)
			if d != first {
				return false
			}
		}
	}
	return true
}

// SyncDue reports whether a sync should begin now, and sets when the next may begin if this one does not help.
func (s *SyncState) SyncDue(now time.Time) bool {
	if s.SyncAt.IsZero() || now.Before(s.SyncAt) {
		return false
	}
	s.SyncAt = now.Add(task.Doubled(SyncAgain, s.Syncs, SyncAgainMax))
	s.Syncs++
	return true
}

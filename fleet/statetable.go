package fleet

import (
	"cmp"
	"fmt"
	"slices"
)

// maxStateRemoved bounds the removed entries that are remembered. An agent that was away for longer than it takes to
// forget one may bring the entry back.
const maxStateRemoved = 200

// StateTable is one agent's copy of its cluster's state. Of each key it keeps the newest writing, so that tables that
// have taken the same entries, in whatever order, are equal. The zero value is an empty one.
type StateTable struct {
	entries map[StateRef]StateEntry
	last    int64 // highest number that it has seen
	bytes   int
}

// Put takes an entry if it is newer than what is there. It reports whether it was.
func (t *StateTable) Put(e StateEntry) (bool, error) {
	if err := e.Validate(); err != nil {
		return false, err
	}
	old, known := t.entries[e.StateRef]
	t.last = max(t.last, e.Number)
	if known && !e.Line().Newer(old.Line()) {
		return false, nil
	}
	if size := t.bytes + len(e.Value) - len(old.Value); size > MaxStateBytes {
		return false, fmt.Errorf("the state may have at most %d bytes", MaxStateBytes)
	}
	if !known && !e.Removed && t.live() >= MaxStateEntries {
		return false, fmt.Errorf("the state may have at most %d entries", MaxStateEntries)
	}
	if t.entries == nil {
		t.entries = map[StateRef]StateEntry{}
	}
	t.bytes += len(e.Value) - len(old.Value)
	t.entries[e.StateRef] = e
	t.forgetRemoved()
	return true, nil
}

// Write makes a new entry under an epoch: newer than all that the table has seen.
func (t *StateTable) Write(ref StateRef, value []byte, epoch int64) (bool, error) {
	if old, known := t.entries[ref]; known {
		if !old.Removed && old.Digest == valueDigest(value) {
			return false, nil
		}
		epoch = max(epoch, old.Epoch)
	}
	return t.Put(StateEntry{StateRef: ref, StateVersion: StateVersion{Epoch: epoch, Number: t.last + 1}, Value: value,
		Digest: valueDigest(value)})
}

// Remove writes that an entry is gone. It reports whether there was one.
func (t *StateTable) Remove(ref StateRef, epoch int64) (bool, error) {
	old, known := t.entries[ref]
	if !known || old.Removed {
		return false, nil
	}
	return t.Put(StateEntry{StateRef: ref, StateVersion: StateVersion{Epoch: max(epoch, old.Epoch), Number: t.last + 1},
		Removed: true})
}

// Forget drops what an agent that is no member any more told of itself. It reports whether there was such an entry.
func (t *StateTable) Forget(ref StateRef) bool {
	old, known := t.entries[ref]
	if !known || !ref.Section.own() {
		return false
	}
	t.bytes -= len(old.Value)
	delete(t.entries, ref)
	return true
}

// Get returns an entry that was not removed.
func (t *StateTable) Get(ref StateRef) (StateEntry, bool) {
	e, known := t.entries[ref]
	return e, known && !e.Removed
}

// Entries returns those of the named ones that the table has, removed ones too.
func (t *StateTable) Entries(refs []StateRef) []StateEntry {
	var found []StateEntry
	for _, ref := range refs {
		if e, known := t.entries[ref]; known {
			found = append(found, e)
		}
	}
	return found
}

// Section returns the entries of a section that were not removed, by key.
func (t *StateTable) Section(s StateSection) map[string]StateEntry {
	found := map[string]StateEntry{}
	for ref, e := range t.entries {
		if ref.Section == s && !e.Removed {
			found[ref.Key] = e
		}
	}
	return found
}

// Manifest lists all entries without their values, sorted.
func (t *StateTable) Manifest() []StateLine {
	lines := make([]StateLine, 0, len(t.entries))
	for _, e := range t.entries {
		lines = append(lines, e.Line())
	}
	return sortedLines(lines)
}

// Summary is what heartbeats tell.
func (t *StateTable) Summary() StateSummary { return SummaryOf(t.Manifest()) }

// SummaryOf is the summary of the state that a manifest describes.
func SummaryOf(manifest []StateLine) StateSummary {
	s := StateSummary{Digest: DigestOfState(manifest)}
	for _, l := range manifest {
		if l.Digest != "" {
			s.Entries++
		}
		if l.Section != StateTasks && l.compare(s.Version) > 0 {
			s.Version = l.StateVersion
		}
	}
	return s
}

func (t *StateTable) live() int {
	n := 0
	for _, e := range t.entries {
		if !e.Removed {
			n++
		}
	}
	return n
}

// forgetRemoved drops the oldest removed entries when there are too many.
func (t *StateTable) forgetRemoved() {
	var removed []StateEntry
	for _, e := range t.entries {
		if e.Removed {
			removed = append(removed, e)
		}
	}
	if len(removed) <= maxStateRemoved {
		return
	}
	slices.SortFunc(removed, func(a, b StateEntry) int {
		return cmp.Or(a.StateVersion.compare(b.StateVersion), a.StateRef.compare(b.StateRef))
	})
	for _, e := range removed[:len(removed)-maxStateRemoved] {
		delete(t.entries, e.StateRef)
	}
}

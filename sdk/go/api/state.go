package api

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// StateSection is a part of the state that the agents of a cluster share.
type StateSection string

// The sections. In the first two each agent writes its own entry, under its id. The leader writes the others, or in a
// sharded cluster any member.
const (
	StateTargets       StateSection = "assigned_targets"
	StateTasks         StateSection = "task_states"
	StateConfiguration StateSection = "configuration"
	StateDigests       StateSection = "cached_digests"
)

// OfOneAgent reports whether each agent writes its own entry of the section, under its id.
func (s StateSection) OfOneAgent() bool { return s == StateTargets || s == StateTasks }

// Bounds of the state that an agent keeps.
const (
	MaxStateEntries = 1000
	MaxStateValue   = 32 << 10 // bytes
	MaxStateBytes   = 1 << 20  // of all values
	MaxStateKey     = 255      // bytes
)

// StateRef names an entry.
type StateRef struct {
	Section StateSection `json:"section"`
	Key     string       `json:"key"`
}

// Compare orders by section, then by key.
func (r StateRef) Compare(o StateRef) int {
	return cmp.Or(cmp.Compare(r.Section, o.Section), strings.Compare(r.Key, o.Key))
}

// StateVersion orders the writes of one key: first by the epoch of the writer's role, so that a former leader's write
// never wins over its successor's, then by a number that grows with each write.
type StateVersion struct {
	Epoch  int64 `json:"epoch,omitempty"`
	Number int64 `json:"number"`
}

func (v StateVersion) compare(o StateVersion) int {
	return cmp.Or(cmp.Compare(v.Epoch, o.Epoch), cmp.Compare(v.Number, o.Number))
}

// Newer reports whether v was written after o.
func (v StateVersion) Newer(o StateVersion) bool { return v.compare(o) > 0 }

// StateEntry is one entry of the state. A removed entry is kept without its value, so that it does not come back.
type StateEntry struct {
	StateRef
	StateVersion
	Value json.RawMessage `json:"value,omitempty"`
	// Digest is the digest of the value, which its writer makes and all others keep.
	Digest  string `json:"digest,omitempty"`
	Removed bool   `json:"removed,omitempty"`
}

// StateLine is a manifest's line: an entry without its value.
type StateLine struct {
	StateRef
	StateVersion
	// Digest is the digest of the value; empty for a removed entry.
	Digest string `json:"digest,omitempty"`
	Size   int    `json:"size,omitempty"` // of the value, in bytes
	// FromOwner says, of a line that agents should have, that the owner of the entry reported it. See LinesOf.
	FromOwner bool `json:"from_owner,omitempty" hidden:"true"`
}

// Newer reports whether l replaces o under the same key. Of two writes with the same version one wins everywhere.
func (l StateLine) Newer(o StateLine) bool {
	return cmp.Or(l.compare(o.StateVersion), strings.Compare(l.Digest, o.Digest)) > 0
}

// lineOverhead is about what a line has as JSON beside its key and its digest.
const lineOverhead = 200

// Bytes is about how many bytes the line has as JSON, with its holder.
func (l StateLine) Bytes() int { return JSONSize(l.Key) + len(l.Digest) + lineOverhead }

func (l StateLine) compare(v StateVersion) int { return l.StateVersion.compare(v) }

// Line is the entry's line in a manifest.
func (e StateEntry) Line() StateLine {
	l := StateLine{StateRef: e.StateRef, StateVersion: e.StateVersion}
	if !e.Removed {
		l.Digest, l.Size = e.Digest, len(e.Value)
	}
	return l
}

// maxVersion bounds the epochs and numbers of versions. maxTaken bounds the numbers that a table takes from others, so
// that a next one is left for its own writes. Hubs refuse far lower ones.
const (
	maxVersion = 1 << 53
	maxTaken   = maxVersion / 2
)

// Validate checks an entry from outside.
func (e StateEntry) Validate() error {
	if err := e.StateRef.Validate(); err != nil {
		return err
	}
	switch {
	case e.Removed && (len(e.Value) > 0 || e.Digest != ""):
		return fmt.Errorf("a removed entry has no value and no digest")
	case !e.Removed && !isHex(e.Digest):
		return fmt.Errorf("a digest must have 8 to 64 hexadecimal digits")
	case !e.Removed && !json.Valid(e.Value):
		return fmt.Errorf("a value must be JSON")
	case CheckJSONDepth(e.Value, MaxJSONValueDepth) != nil:
		return ErrJSONDepth
	case len(e.Value) > MaxStateValue:
		return fmt.Errorf("a value may have at most %d bytes", MaxStateValue)
	case e.Epoch < 0 || e.Number < 1 || max(e.Epoch, e.Number) > maxVersion:
		return fmt.Errorf("a version's epoch must lie between 0 and %d, and its number between 1 and that", maxVersion)
	}
	return nil
}

// Validate checks a line from outside.
func (l StateLine) Validate() error {
	if err := l.StateRef.Validate(); err != nil {
		return err
	}
	if l.Epoch < 0 || l.Number < 1 || max(l.Epoch, l.Number) > maxVersion || l.Size < 0 || l.Size > MaxStateValue ||
		l.Digest != "" && !isHex(l.Digest) {
		return fmt.Errorf(
			"a line of a manifest has a version, a size of at most %d, and a digest of 8 to 64 hexadecimal digits", MaxStateValue)
	}
	return nil
}

// Validate checks a name of an entry.
func (r StateRef) Validate() error {
	switch r.Section {
	case StateTargets, StateTasks, StateConfiguration, StateDigests:
	default:
		return fmt.Errorf("section must be assigned_targets, task_states, configuration or cached_digests")
	}
	if r.Key == "" || len(r.Key) > MaxStateKey || !utf8.ValidString(r.Key) ||
		strings.ContainsFunc(r.Key, unicode.IsControl) {
		return fmt.Errorf("a key must have 1 to %d bytes of text without control characters", MaxStateKey)
	}
	return nil
}

// EmptyState is the digest of a state without entries.
const EmptyState = "empty"

// DigestOfState is the digest of a manifest: equal digests mean equal states. Task states, which change by the second,
// do not count.
func DigestOfState(manifest []StateLine) string {
	h := sha256.New()
	any := false
	for _, l := range SortedLines(manifest) {
		if l.Section != StateTasks {
			any = true
			h.Write([]byte(string(l.Section) + "\x00" + l.Key + "\x00" + strconv.FormatInt(l.Epoch, 10) +
				"." + strconv.FormatInt(l.Number, 10) +
				"\x00" + l.Digest + "\n"))
		}
	}
	if !any {
		return EmptyState
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

func valueDigest(value json.RawMessage) string {
	sum := sha256.Sum256(value)
	return hex.EncodeToString(sum[:16])
}

func isHex(s string) bool {
	_, err := hex.DecodeString(s)
	return err == nil && len(s) >= 8 && len(s) <= 64
}

// SortedLines are the lines in the order of what they refer to; lines that are in order come back as they are.
func SortedLines(lines []StateLine) []StateLine {
	if slices.IsSortedFunc(lines, func(a, b StateLine) int { return a.StateRef.Compare(b.StateRef) }) {
		return lines
	}
	lines = slices.Clone(lines)
	slices.SortFunc(lines, func(a, b StateLine) int { return a.StateRef.Compare(b.StateRef) })
	return lines
}

// TaskState is a running task in an agent's own entry.
type TaskState struct {
	TaskID    string    `json:"task_id"`
	Attempt   int       `json:"attempt"`
	Type      string    `json:"type,omitempty"`
	StartedAt time.Time `json:"started_at,omitzero"`
}

// StateSummary describes an agent's state in its heartbeats, after a change.
type StateSummary struct {
	Digest string `json:"digest"`
	// Entries counts all entries except removed ones.
	Entries int `json:"entries"`
	// Version is the newest version of all entries except the task states.
	Version StateVersion `json:"version"`
}

// Validate checks a summary from outside.
func (s *StateSummary) Validate() error {
	if s.Digest != EmptyState && !isHex(s.Digest) || s.Entries < 0 || s.Entries > MaxStateEntries {
		return fmt.Errorf("digest must be 8 to 64 hexadecimal digits, or %q; entries must lie between 0 and %d",
			EmptyState, MaxStateEntries)
	}
	return nil
}

// maxStateRemoved bounds the removed entries that are kept. An agent that was away for longer than that may bring an
// entry back.
const maxStateRemoved = 200

// StateTable is one agent's copy of its cluster's state. It keeps the newest write of each key, so tables that have
// taken the same entries, in any order, are equal. The zero value is an empty table.
type StateTable struct {
	entries map[StateRef]StateEntry
	last    int64 // highest number that it has seen
	bytes   int
}

// Put takes an entry from outside if it is newer than the present one. It reports whether it was.
func (t *StateTable) Put(e StateEntry) (bool, error) {
	if e.Number > maxTaken {
		return false, fmt.Errorf("%s %q has the number %d: at most %d is taken, so that there is a next one",
			e.Section, e.Key, e.Number, int64(maxTaken))
	}
	return t.put(e)
}

func (t *StateTable) put(e StateEntry) (bool, error) {
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

// Write makes a new entry under an epoch, newer than all that the table has seen.
func (t *StateTable) Write(ref StateRef, value []byte, epoch int64) (bool, error) {
	if old, known := t.entries[ref]; known {
		// The digest alone is its writer's word.
		if !old.Removed && old.Digest == valueDigest(value) && bytes.Equal(old.Value, value) {
			return false, nil
		}
		epoch = max(epoch, old.Epoch)
	}
	return t.put(StateEntry{StateRef: ref, StateVersion: StateVersion{Epoch: epoch, Number: t.last + 1}, Value: value,
		Digest: valueDigest(value)})
}

// Remove removes an entry by a newer write. It reports whether there was one.
func (t *StateTable) Remove(ref StateRef, epoch int64) (bool, error) {
	old, known := t.entries[ref]
	if !known || old.Removed {
		return false, nil
	}
	return t.put(StateEntry{StateRef: ref, StateVersion: StateVersion{Epoch: max(epoch, old.Epoch), Number: t.last + 1},
		Removed: true})
}

// Forget drops the own entry of a former member. It reports whether there was one.
func (t *StateTable) Forget(ref StateRef) bool {
	old, known := t.entries[ref]
	if !known || !ref.Section.OfOneAgent() {
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

// Entries returns those of the named entries that the table has, with removed ones.
func (t *StateTable) Entries(refs []StateRef) []StateEntry {
	var found []StateEntry
	for _, ref := range refs {
		if e, known := t.entries[ref]; known {
			found = append(found, e)
		}
	}
	return found
}

// Section returns the entries of a section by key, without removed ones.
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
	return SortedLines(lines)
}

// Summary describes the state for heartbeats.
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
		return cmp.Or(a.StateVersion.compare(b.StateVersion), a.StateRef.Compare(b.StateRef))
	})
	for _, e := range removed[:len(removed)-maxStateRemoved] {
		delete(t.entries, e.StateRef)
	}
}

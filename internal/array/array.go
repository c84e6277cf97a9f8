// Package array decides about arrays: many elements of one kind of work, which are delivered in bundles. A bundle is
// one attempt of one agent. The decisions are pure: they read no clock and do no I/O. Package workflows/array carries
// them out.
package array

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
)

// Bounds of how much of an array is under way at a time.
const (
	DefaultParallel = 64
	MaxParallel     = 512
	// underWayBytes bounds the results of all bundles under way: Temporal ends a workflow with 50 MiB of history.
	underWayBytes = 24 << 20
)

// Definition is what a client submits.
type Definition struct {
	// Spec is common to all elements. Without items, its payload is each element's.
	Spec api.TaskSpec `json:"spec"`
	// Items are the elements' payloads; else Count is how many elements there are.
	Items []json.RawMessage `json:"items,omitempty"`
	Count int               `json:"count,omitempty"`
	// Parallel bounds the bundles that are in lanes or with agents. 0: DefaultParallel.
	Parallel int `json:"max_parallel,omitempty"`
	// Tolerate is how many elements may fail before the rest is cancelled; absent: all are tried.
	Tolerate *int `json:"tolerate,omitempty"`
}

// DefinitionOf is the array that a request asks for.
func DefinitionOf(r *api.ArrayRequest) Definition {
	return Definition{Spec: r.TaskSpec, Items: r.Items, Count: r.Count, Parallel: r.MaxParallel,
		Tolerate: r.Tolerate}
}

// Total is the number of elements.
func (d *Definition) Total() int {
	if len(d.Items) > 0 {
		return len(d.Items)
	}
	return d.Count
}

// Bytes is the size of all payloads.
func (d *Definition) Bytes() int {
	bytes := len(d.Spec.Payload)
	for _, item := range d.Items {
		bytes += len(item)
	}
	return bytes
}

// Payload is an element's.
func (d *Definition) Payload(n int) json.RawMessage {
	if len(d.Items) > 0 {
		return d.Items[n]
	}
	return d.Spec.Payload
}

// Digest distinguishes submissions with the same id or key, as that of a task does: by their meaning.
func (d *Definition) Digest() (string, error) {
	spec, err := d.Spec.Digest()
	if err != nil {
		return "", err
	}
	items, err := json.Marshal(d.Items)
	if err != nil {
		return "", fmt.Errorf("encode the items: %w", err)
	}
	text, err := json.Marshal([]any{spec, api.JSONDigest(items), d.Count,
		cmp.Or(d.Parallel, DefaultParallel), d.Tolerate})
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16]), err
}

// Validate checks what needs no facts about the fleet. Messages never repeat a submitted value.
func (d *Definition) Validate() error {
	if err := d.Spec.Validate(); err != nil {
		return err
	}
	if d.Spec.Recovery != nil || d.Spec.KeepRunning {
		return errors.New("task: recovery and keep_running are for tasks and steps; an array has retry")
	}
	if len(d.Spec.Routes) > 0 {
		return errors.New("task: routes are for tasks and steps")
	}
	switch {
	case len(d.Items) > 0 && (d.Count != 0 || len(d.Spec.Payload) > 0):
		return errors.New("give items, or count with payload, not both")
	case d.Total() < 1 || d.Total() > api.MaxElements:
		return fmt.Errorf("an array has 1 to %d elements", api.MaxElements)
	case len(d.Items) > 0 && d.Bytes() > task.MaxItemsBytes:
		return fmt.Errorf("%w: the items have more than %d bytes together: use several arrays", api.ErrTooLarge,
			task.MaxItemsBytes)
	case len(d.Spec.Payload) > bundleBytes:
		return fmt.Errorf("%w: the payload of an array's elements has more than %d bytes", api.ErrTooLarge, bundleBytes)
	case d.Parallel < 0 || d.Parallel > MaxParallel:
		return fmt.Errorf("max_parallel must be 1 to %d", MaxParallel)
	case d.Tolerate != nil && *d.Tolerate < 0:
		return errors.New("tolerate must not be negative")
	case !d.Spec.StartAt.IsZero() || !d.Spec.ExpiresAt.IsZero():
		return errors.New("an array takes neither start_at nor expires_at: its elements wait for expires_in each")
	}
	return nil
}

// oneByOne reports whether elements are never bundled: a person decides about each that was lost, or its signs of life
// are watched.
func (d *Definition) oneByOne() bool {
	return d.Spec.Safety().NeedsPerson() || d.Spec.BeaconTimeout > 0
}

func (d *Definition) parallel() int {
	if d.Parallel == 0 {
		return DefaultParallel
	}
	return d.Parallel
}

// ResultLimit is how many bytes the results of a bundle may have together.
func (d *Definition) ResultLimit() int { return min(underWayBytes/d.parallel(), api.MaxPayloadBytes) }

// Mark separates an array's id from an element's number, or from a bundle's, in the ids of tasks. Ids that clients
// choose cannot hold it, and the keys of a run's steps do not begin with a dot.
const Mark = "~."

// ElementID is the task id of an element.
func ElementID(array string, n int) string { return array + Mark + strconv.Itoa(n) }

// BundleID is the task id of a bundle.
func BundleID(array string, n int) string { return array + Mark + "b" + strconv.Itoa(n) }

// ElementOf is the inverse of ElementID.
func ElementOf(task string) (array string, n int, ok bool) {
	array, number, found := strings.Cut(task, Mark)
	n, err := strconv.Atoi(number)
	return array, n, found && err == nil && n >= 0 && strconv.Itoa(n) == number
}

// countOf is the count of a status.
func countOf(c *api.ElementCounts, s api.ElementStatus) *int {
	switch s {
	case api.ElementRunning:
		return &c.Running
	case api.ElementReview:
		return &c.Review
	case api.ElementDeadLetter:
		return &c.DeadLetter
	case api.ElementCompleted:
		return &c.Completed
	case api.ElementFailed:
		return &c.Failed
	case api.ElementCancelled:
		return &c.Cancelled
	}
	return &c.Queued
}

// openOf is how many have not ended and do not wait for a person.
func openOf(c *api.ElementCounts) int { return c.Queued + c.Running }

// marks are the statuses of all elements, a letter each.
type marks []byte

// letters are the statuses' marks.
const letters = "qwrvdcfx"

var statuses = []api.ElementStatus{api.ElementQueued, api.ElementRetryWait, api.ElementRunning, api.ElementReview,
	api.ElementDeadLetter, api.ElementCompleted, api.ElementFailed, api.ElementCancelled}

func (m marks) MarshalText() ([]byte, error) { return m, nil }

func (m *marks) UnmarshalText(text []byte) error {
	*m = slices.Clone(text)
	return nil
}

func (m marks) status(n int) api.ElementStatus { return statuses[strings.IndexByte(letters, m[n])] }

// Cause is why an element failed last.
type Cause struct {
	Number int    `json:"n"`
	Text   string `json:"why"`
	Type   string `json:"type,omitempty"`
}

const (
	// causesKept bounds the causes that the state keeps, and causeBytes each: they are carried over continue-as-new.
	causesKept = 1000
	causeBytes = 300
)

// Bundle is a delivery: one or more elements for one agent.
type Bundle struct {
	Number   int   `json:"b"` // counts the array's deliveries from 1
	Elements []int `json:"e"`
	// Attempts are the numbers of the elements' attempts.
	Attempts []int `json:"a"`
	suspect  bool
}

// Single reports whether the delivery is an ordinary assignment of one element.
func (b *Bundle) Single() bool { return len(b.Elements) == 1 }

// TaskID is the id of the delivery's task: the element's, or the bundle's own.
func (b *Bundle) TaskID(array string) string {
	if b.Single() {
		return ElementID(array, b.Elements[0])
	}
	return BundleID(array, b.Number)
}

// Attempt is the number of the attempt of that task.
func (b *Bundle) Attempt() int {
	if b.Single() {
		return b.Attempts[0]
	}
	return 1
}

// State is the array as it stands. It is carried over continue-as-new while no bundle is under way.
type State struct {
	Counts     api.ElementCounts `json:"counts"`
	Marks      marks             `json:"marks"`
	Low        int               `json:"low"` // no element before it is queued
	Troubles   troubles          `json:"troubles,omitzero"`
	Causes     []Cause           `json:"causes,omitempty"`
	Bundles    int               `json:"bundles"`              // so far
	Base       int               `json:"base,omitempty"`       // attempts count from here: a retry by hand raises it
	Mean       int64             `json:"mean_ms,omitempty"`    // of elements' times
	Measured   bool              `json:"measured,omitempty"`   // there is a mean
	Singles    int               `json:"singles,omitempty"`    // that many deliveries have one element
	Returns    int               `json:"returns,omitempty"`    // deliveries in a row that no agent took
	HoldUntil  time.Time         `json:"hold_until,omitzero"`  // nothing begins before
	HoldWhy    string            `json:"hold_why,omitempty"`   // why
	TakenAt    time.Time         `json:"taken_at,omitzero"`    // when an agent last took something, or the first delivery
	Stopped    string            `json:"stopped,omitempty"`    // why the rest was cancelled
	Duplicates int               `json:"duplicates,omitempty"` // results that were not accepted
	flight     []Bundle
}

// New is the state of an array that begins.
func New(total int) *State {
	s := &State{Counts: api.ElementCounts{Total: total, Queued: total}, Marks: make(marks, total)}
	for i := range s.Marks {
		s.Marks[i] = 'q'
	}
	return s
}

// mark sets the status of an element.
func (s *State) mark(n int, status api.ElementStatus) {
	*countOf(&s.Counts, s.Marks.status(n))--
	*countOf(&s.Counts, status)++
	s.Marks[n] = letters[slices.Index(statuses, status)]
	if status == api.ElementQueued {
		s.Low = min(s.Low, n)
	}
}

// trouble is a copy of an element's trouble.
func (s *State) trouble(n int) trouble {
	if t := s.Troubles.find(n); t != nil {
		return *t
	}
	return trouble{Number: n, Attempts: s.Base}
}

// blame keeps why an element failed; "" removes that.
func (s *State) blame(n int, why, kind string) {
	i, found := slices.BinarySearchFunc(s.Causes, n, func(c Cause, n int) int { return c.Number - n })
	switch {
	case found && why == "":
		s.Causes = slices.Delete(s.Causes, i, i+1)
		return
	case why == "" || !found && len(s.Causes) >= causesKept:
		return
	case !found:
		s.Causes = slices.Insert(s.Causes, i, Cause{})
	}
	s.Causes[i] = Cause{Number: n, Text: short(why, causeBytes), Type: short(kind, api.MaxErrorTypeBytes)}
}

// short cuts a text to most bytes as JSON, where some characters take six.
func short(text string, most int) string {
	for i, r := range text {
		switch {
		case strings.ContainsRune("\"\\\n\r\t", r):
			most -= 2
		case r < ' ' || strings.ContainsRune("<>&\u2028\u2029\ufffd", r):
			most -= 6
		default:
			most -= utf8.RuneLen(r)
		}
		if most < 0 {
			return text[:i] + "…"
		}
	}
	return text
}

package workflowtest

import (
	"slices"
	"sync"
)

// Sent collects what a workflow under test sends to others. The test environment answers each signal, and runs each
// activity, in a goroutine of its own: two may run at once, and a signal that the workflow does not await may be
// answered after the workflow's end.
type Sent[T any] struct {
	mu  sync.Mutex
	all []T
}

// Add notes that something was sent.
func (s *Sent[T]) Add(sent ...T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, sent...)
}

// All is what was sent so far.
func (s *Sent[T]) All() []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}

package access

import (
	"context"
	"slices"
	"strings"
	"sync"
)

const (
	// maxTarget bounds a name in the audit log, in bytes.
	maxTarget = 128
	// maxKinds bounds the kinds of names of one request, and maxOfKind the names of each: a batch has as many tasks.
	maxKinds  = 16
	maxOfKind = 1000
)

// Targets are what a request is about, for the audit log: what its path names, and what it made.
type Targets struct {
	mu    sync.Mutex
	names map[string][]string // by kind
}

// NewTargets begins with what the path names.
func NewTargets(path map[string]string) *Targets {
	t := &Targets{names: map[string][]string{}}
	for kind, name := range path {
		t.add(kind, name)
	}
	return t
}

func (t *Targets) add(kind, name string) {
	name = strings.Map(plain, Redact(name)) // somebody may send a token where an id belongs
	if len(name) > maxTarget {
		name = name[:maxTarget]
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	of, known := t.names[kind]
	if (known || len(t.names) < maxKinds) && len(of) < maxOfKind && !slices.Contains(of, name) {
		t.names[kind] = append(of, name)
	}
}

// plain replaces characters that no id has by a question mark: in JSON they may take six bytes. Redact's "…" stays.
func plain(r rune) rune {
	if r != '…' && (r <= ' ' || r > '~' || strings.ContainsRune(`"\<>&`, r)) {
		return '?'
	}
	return r
}

// Names are the targets by what they are. Several of one kind, as the tasks of a batch, have blanks between them.
func (t *Targets) Names() map[string]string {
	t.mu.Lock()
	defer t.mu.Unlock()
	names := make(map[string]string, len(t.names))
	for kind, of := range t.names {
		names[kind] = strings.Join(of, " ")
	}
	return names
}

type targetsKey struct{}

// WithTargets carries the targets of a request.
func WithTargets(ctx context.Context, t *Targets) context.Context {
	return context.WithValue(ctx, targetsKey{}, t)
}

// Touch notes what a request made or acted on, as Touch(ctx, "task", id), for the audit log.
func Touch(ctx context.Context, kind, name string) {
	if t, ok := ctx.Value(targetsKey{}).(*Targets); ok && name != "" {
		t.add(kind, name)
	}
}

package spawner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/sdk/api"
)

// Turns lets one call at a time be about an id. Its zero value is ready.
type Turns struct {
	mu   sync.Mutex
	busy map[string]chan struct{} // closed when the turn ends
}

// Take waits until no other call is about the id. The caller must call release.
func (t *Turns) Take(ctx context.Context, id string) (release func(), err error) {
	for {
		t.mu.Lock()
		busy := t.busy[id]
		if busy == nil {
			done := make(chan struct{})
			if t.busy == nil {
				t.busy = map[string]chan struct{}{}
			}
			t.busy[id] = done
			t.mu.Unlock()
			return func() {
				t.mu.Lock()
				delete(t.busy, id)
				t.mu.Unlock()
				close(done)
			}, nil
		}
		t.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// TerminateAll ends all agents of a spawner, side by side.
func TerminateAll(ctx context.Context, s Spawner, graceful bool) error {
	list, err := s.List(ctx)
	if err != nil {
		return err
	}
	errs := make([]error, len(list))
	var wg sync.WaitGroup
	for i := range list {
		wg.Go(func() { errs[i] = s.Terminate(ctx, list[i].ID, graceful) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// CheckSpec refuses what no spawner can start.
func CheckSpec(spec *cluster.SpawnSpec) error {
	err := errors.Join(api.ValidateID("id", spec.ID), api.ValidateID("cluster", spec.Cluster),
		spec.Resources.Validate())
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return nil
}

// SortSpawned sorts agents by id.
func SortSpawned(list []cluster.Spawned) {
	slices.SortFunc(list, func(a, b cluster.Spawned) int { return strings.Compare(a.ID, b.ID) })
}

// Pause waits for a while, or until ctx ends.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

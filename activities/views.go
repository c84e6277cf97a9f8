package activities

import (
	"context"
	"sync"
	"time"

	"mainstay.dev/mainstay/internal/contract"
)

// viewKept is how long the newest view of a cluster is kept.
const viewKept = 10 * time.Second

// views are looks at clusters that are shared: for each, a cluster writes all of its state.
type views struct {
	mu sync.Mutex
	of map[string]*sharedView
}

type sharedView struct {
	turn  chan struct{} // holds an element while somebody looks, or reads the rest
	view  contract.ClusterView
	err   error
	began time.Time // the newest look
	ended time.Time
	until time.Time // there is no other before
}

// since returns a view of a cluster that somebody asked for since a time. A look is followed by none for rest times as
// long as it took, and at least watchFirst and at most watchMost; rest 0: for no time.
func (v *views) since(
	ctx context.Context, cluster string, at time.Time, rest time.Duration,
	look func(context.Context, string) (contract.ClusterView, error),
) (contract.ClusterView, error) {
	s, asked := v.shared(cluster), time.Now()
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return contract.ClusterView{}, ctx.Err()
	}
	defer func() { <-s.turn }()
	if !s.began.Before(at) && (s.err == nil || !asked.After(s.ended)) { // an error is for those who waited for it
		return s.view, s.err
	}
	select {
	case <-time.After(time.Until(s.until)):
	case <-ctx.Done():
		return contract.ClusterView{}, ctx.Err()
	}
	began := time.Now()
	view, err := look(ctx, cluster)
	if ctx.Err() == nil {
		s.view, s.err, s.began, s.ended, s.until = view, err, began, time.Now(), time.Time{}
		if rest > 0 {
			s.until = s.ended.Add(min(max(watchFirst, rest*s.ended.Sub(began)), watchMost))
		}
	}
	return view, err
}

func (v *views) shared(cluster string) *sharedView {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.of[cluster]
	if s == nil {
		if v.of == nil {
			v.of = map[string]*sharedView{}
		}
		s = &sharedView{turn: make(chan struct{}, 1)}
		v.of[cluster] = s
		time.AfterFunc(viewKept, func() { v.forget(cluster) })
	}
	return s
}

func (v *views) forget(cluster string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.of, cluster)
}

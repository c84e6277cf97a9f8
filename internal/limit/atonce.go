package limit

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

// AtOnce bounds how much each of many keys has under way at a time. It forgets keys with nothing under way. The zero
// value lets each key have one.
type AtOnce struct {
	Most int64 // for each key; 0: 1

	mu   sync.Mutex
	keys map[string]*underWay
}

type underWay struct {
	*semaphore.Weighted
	used int64 // how much is held or waited for
}

// Acquire waits until a key may have n more under way, until release is called. A request for more than the limit gets
// all of it. The error is ctx's.
func (l *AtOnce) Acquire(ctx context.Context, key string, n int64) (release func(), err error) {
	if n = min(n, l.most()); n <= 0 {
		return func() {}, nil
	}
	if err := l.use(key, n).Acquire(ctx, n); err != nil {
		l.unuse(key, n)
		return nil, err
	}
	return sync.OnceFunc(func() { l.release(key, n) }), nil
}

// tryAcquire is Acquire without a wait.
func (l *AtOnce) tryAcquire(key string, n int64) bool {
	if l.use(key, n).TryAcquire(n) {
		return true
	}
	l.unuse(key, n)
	return false
}

func (l *AtOnce) release(key string, n int64) {
	l.unuse(key, n).Release(n)
}

func (l *AtOnce) most() int64 { return max(l.Most, 1) }

func (l *AtOnce) use(key string, n int64) *underWay {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.keys[key]
	if of == nil {
		if l.keys == nil {
			l.keys = map[string]*underWay{}
		}
		of = &underWay{Weighted: semaphore.NewWeighted(l.most())}
		l.keys[key] = of
	}
	of.used += n
	return of
}

func (l *AtOnce) unuse(key string, n int64) *underWay {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.keys[key]
	if of.used -= n; of.used == 0 {
		delete(l.keys, key)
	}
	return of
}

// Share is a key of a limit.
type Share struct {
	Of  *AtOnce
	Key string
}

// Hold is what one holder has of one or more limits together. A new one has nothing.
type Hold struct {
	Shares []Share

	mu   sync.Mutex
	size int64
}

// Grow holds as much as size, without a wait. It reports false, and changes nothing, where one of the limits has no
// room for it. A holder that is alone may hold any size.
func (h *Hold) Grow(size int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, s := range h.Shares {
		if more := s.more(h.size, size); more > 0 && !s.Of.tryAcquire(s.Key, more) {
			giveBack(h.Shares[:i], h.size, size)
			return false
		}
	}
	h.size = max(h.size, size)
	return true
}

// Release gives all of it back.
func (h *Hold) Release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	giveBack(h.Shares, 0, h.size)
	h.size = 0
}

// giveBack gives back what is beyond left.
func giveBack(shares []Share, left, size int64) {
	for _, s := range shares {
		if less := s.more(left, size); less > 0 {
			s.Of.release(s.Key, less)
		}
	}
}

// more is how much more a holder of one size has than one of another: at most all that there is.
func (s Share) more(than, size int64) int64 { return min(size, s.Of.most()) - min(than, s.Of.most()) }

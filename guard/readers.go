package guard

import (
	"context"
	"sync"
	"time"

	"mainstay.dev/mainstay/httpapi"
	"mainstay.dev/mainstay/ratelimit"
)

const (
	// readRate and readBurst bound how long a second, and how long at once, lists are read for one reader: a quarter of
	// the time. Others' requests wait for a store that reads.
	readRate  = float64(time.Second / 4 / time.Microsecond)
	readBurst = int(time.Second / 4 / time.Microsecond)
	// readWait is how long a request waits for its turn.
	readWait = 3 * time.Second
)

// readers have the lists of one tenant, or of one token without a tenant, read one after another, with rests.
type readers struct {
	spent *ratelimit.Limiter // microseconds
	mu    sync.Mutex
	turns map[string]*readTurn // of those who read or wait
}

type readTurn struct {
	taken chan struct{} // holds one element while somebody reads
	users int
}

func newReaders() *readers {
	return &readers{spent: ratelimit.New(readRate, readBurst), turns: map[string]*readTurn{}}
}

// take waits for the reader's turn, which ends when done is called; or it returns the problem to answer with.
func (r *readers) take(ctx context.Context, reader string) (done func(), err error) {
	turn := r.enter(reader)
	ctx, cancel := context.WithTimeout(ctx, readWait)
	defer cancel()
	select {
	case turn.taken <- struct{}{}:
	case <-ctx.Done():
		r.leave(reader)
		return nil, errReaders
	}
	leave := func() {
		<-turn.taken
		r.leave(reader)
	}
	if rest := r.spent.Take(reader, 0, time.Now()); rest > 0 {
		select {
		case <-time.After(rest):
		case <-ctx.Done():
			leave()
			return nil, errReaders
		}
	}
	began := time.Now()
	return sync.OnceFunc(func() {
		now := time.Now()
		r.spent.Spend(reader, int(now.Sub(began)/time.Microsecond), now)
		leave()
	}), nil
}

var errReaders = httpapi.RetryAfter(time.Second,
	"other lists of this tenant or token are being read, and take long: read one after another, with narrower filters")

func (r *readers) enter(reader string) *readTurn {
	r.mu.Lock()
	defer r.mu.Unlock()
	turn := r.turns[reader]
	if turn == nil {
		turn = &readTurn{taken: make(chan struct{}, 1)}
		r.turns[reader] = turn
	}
	turn.users++
	return turn
}

func (r *readers) leave(reader string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if turn := r.turns[reader]; turn.users > 1 {
		turn.users--
	} else {
		delete(r.turns, reader)
	}
}

package guard

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"mainstay.dev/mainstay/httpapi"
)

const (
	// readShare: lists are read for one reader in one of so many parts of the time. While a store reads, others wait.
	readShare = 8
	// readAhead is how far that share may be used ahead of its time: 250 ms of reading.
	readAhead = readShare * 250 * time.Millisecond
	// longRead is the longest that a read counts as: what makes reads long may be none of the reader's doing.
	longRead = time.Second
	// shortRest is the longest rest between the reads of one request, so that it can end.
	shortRest = 100 * time.Millisecond
	// readWait is how long a request waits for its turn: longer than the longest rest, so that one who reads alone is
	// never refused.
	readWait = 10 * time.Second
)

// readers have the lists of one tenant, or of one token without a tenant, read one after another, with rests.
type readers struct {
	mu    sync.Mutex
	turns map[string]*readTurn // of those who read, wait or rest
}

type readTurn struct {
	users int
	taken chan struct{} // holds one element while somebody reads
	rests time.Time     // until when the reader would rest, had it used nothing ahead; who has taken the turn sets it
}

func newReaders() *readers { return &readers{turns: map[string]*readTurn{}} }

// of is how a request takes its turns; see httpapi.Turn. Of one client's requests only one waits for the reader's turn,
// so that the others of a tenant get theirs. Once it has waited for a rest to end, a request reads on after short ones.
func (r *readers) of(reader, client string) func(context.Context) (done func(), err error) {
	var rested atomic.Bool
	return func(ctx context.Context) (func(), error) {
		ctx, cancel := context.WithTimeout(ctx, readWait)
		defer cancel()
		_, leave, err := r.take(ctx, "client "+client)
		if err != nil {
			return nil, err
		}
		done, err := r.read(ctx, "reader "+reader, !rested.Load())
		if err != nil {
			leave()
			return nil, err
		}
		rested.Store(true)
		return func() {
			done()
			leave()
		}, nil
	}
}

// read waits for the reader's turn, and for the end of its rest: at most shortRest, unless it is the first of its
// request. done ends the read.
func (r *readers) read(ctx context.Context, reader string, first bool) (done func(), err error) {
	turn, leave, err := r.take(ctx, reader)
	if err != nil {
		return nil, err
	}
	rest := time.Until(turn.rests.Add(-readAhead))
	if !first {
		rest = min(rest, shortRest)
	}
	if rest > 0 {
		select {
		case <-time.After(rest):
		case <-ctx.Done():
			leave()
			return nil, errReaders
		}
	}
	began := time.Now()
	return sync.OnceFunc(func() {
		if turn.rests.Before(began) {
			turn.rests = began
		}
		turn.rests = turn.rests.Add(readShare * min(time.Since(began), longRead))
		leave()
	}), nil
}

// take waits for a turn, until leave is called.
func (r *readers) take(ctx context.Context, key string) (turn *readTurn, leave func(), err error) {
	turn = r.enter(key)
	select {
	case turn.taken <- struct{}{}:
		return turn, func() {
			<-turn.taken
			r.leave(key, turn)
		}, nil
	case <-ctx.Done():
		r.leave(key, turn)
		return nil, nil, errReaders
	}
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

// leave forgets the turn when nobody uses it and its rest is over.
func (r *readers) leave(reader string, turn *readTurn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if turn.users--; turn.users > 0 {
		return
	}
	time.AfterFunc(time.Until(turn.rests), func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.turns[reader] == turn && turn.users == 0 && !time.Now().Before(turn.rests) {
			delete(r.turns, reader)
		}
	})
}

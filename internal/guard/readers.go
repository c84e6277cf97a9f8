package guard

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/limit"
)

const (
	// readShare: one reader's lists are read for one eighth of the time. While a store reads, others wait.
	readShare = 8
	// readAhead is how much reading a reader may do ahead of its share.
	readAhead = 250 * time.Millisecond
	// longRead is the longest time that a read counts: slow reads may not be the reader's fault.
	longRead = time.Second
	// shortRest is the longest rest between the reads of one request, so that it can end.
	shortRest = 100 * time.Millisecond
	// readWait is how long a request waits for its turn: longer than the longest rest, so that one who reads alone is
	// never refused.
	readWait = 10 * time.Second
)

// readers have the lists of one tenant, or of one token without a tenant, read one after another, with rests.
type readers struct {
	turns limit.AtOnce
	time  *limit.Rate // of each reader, in microseconds of reading
}

func newReaders() *readers {
	return &readers{time: limit.NewRate(float64(time.Second.Microseconds())/readShare, int(readAhead.Microseconds()))}
}

// of is how a request takes its turns; see httpapi.Turn. Of one client's requests only one waits for the reader's turn,
// so that the others of a tenant get theirs. After its first full rest, a request rests only briefly.
func (r *readers) of(reader, client string) func(context.Context) (done func(), err error) {
	var rested atomic.Bool
	return func(ctx context.Context) (func(), error) {
		ctx, cancel := context.WithTimeout(ctx, readWait)
		defer cancel()
		leave, err := r.turns.Acquire(ctx, "client "+client, 1)
		if err != nil {
			return nil, errReaders
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
	leave, err := r.turns.Acquire(ctx, reader, 1)
	if err != nil {
		return nil, errReaders
	}
	rest := r.time.Spend(reader, 0, time.Now())
	if !first {
		rest = min(rest, shortRest)
	}
	select {
	case <-time.After(rest):
	case <-ctx.Done():
		leave()
		return nil, errReaders
	}
	began := time.Now()
	return sync.OnceFunc(func() {
		now := time.Now()
		r.time.SpendAll(reader, int(min(now.Sub(began), longRead).Microseconds()), now)
		leave()
	}), nil
}

var errReaders = httpapi.RetryAfter(time.Second,
	"other lists of this tenant or token are being read, and take long: read one after another, with narrower filters")

package guard

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.temporal.io/sdk/client"
	"go.uber.org/zap"

	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/store"
)

const (
	// tokensFresh is how long tokens are believed to be as they were read: a revoked one works for as long at most.
	tokensFresh = 5 * time.Second
	// tokensGap is the least time between two readings, and tokensRetry that after one that failed. Made-up tokens
	// cause readings, so they must be rare.
	tokensGap = 100 * time.Millisecond
	// anewGap is tokensGap for readings that those with a good token ask for.
	anewGap     = 5 * time.Millisecond
	tokensRetry = time.Second
	// tokensTimeout bounds one reading; a request waits for it.
	tokensTimeout = 2 * time.Second
	// endedKept is how many sessions that ended here are remembered beside those that were read.
	endedKept = 1000
	// goneKept is how many revoked tokens are remembered.
	goneKept = 10_000
)

// errTokensUnknown says that the token cannot be checked now.
var errTokensUnknown = errors.New("the tokens cannot be read from Temporal")

// Reader reads all tokens that there are, and the browsers' sessions that were signed out.
type Reader func(ctx context.Context) ([]access.Record, []access.EndedSession, error)

// FromTemporal reads them from the workflow that keeps them, which needs no worker. It leaves out tokens that were not
// sealed with the key: somebody else has written them to Temporal, or another key was used then.
func FromTemporal(c client.Client, key []byte, logger *zap.Logger) Reader {
	var said atomic.Int64 // how many were left out
	return func(ctx context.Context) ([]access.Record, []access.EndedSession, error) {
		all, ended, err := store.Store{Client: c}.Access(ctx)
		sealed := slices.DeleteFunc(slices.Clone(all), func(r access.Record) bool { return !r.SealedWith(key) })
		if left := int64(len(all) - len(sealed)); said.Swap(left) != left && left > 0 {
			logger.Error("Tokens in Temporal are ignored, because this installation's token key did not make them: "+
				"revoke them, and make new ones", zap.Int64("tokens", left))
		}
		return sealed, ended, err
	}
}

// SessionEnder ends browsers' sessions in that workflow.
func SessionEnder(c client.Client) func(context.Context, access.EndedSession) error {
	return func(ctx context.Context, s access.EndedSession) error {
		_, err := store.UpdateAccess(ctx, store.Store{Client: c}, contract.EndSessionUpdate, s)
		return err
	}
}

// directory knows the tokens, a few seconds late at most. While Temporal is away it uses the last ones that it read. A
// token that was there and is gone does not come back.
type directory struct {
	logger *zap.Logger
	read   Reader
	now    func() time.Time
	pause  func(ctx context.Context, d time.Duration)

	mu        sync.Mutex
	tokens    map[string]access.Record // by id
	ended     []access.EndedSession
	gone      map[string]bool       // ids of tokens that were there and then were not; true: their return was logged
	endedHere []access.EndedSession // by this process, of the last moments: a reading may not have them yet
	readAt    time.Time             // when the reading of tokens began; zero: never
	triedAt   time.Time             // when the last reading began
	failed    bool                  // the last reading
	reading   chan struct{}         // closed when the reading under way ends; nil: none is
}

func newDirectory(read Reader, logger *zap.Logger) *directory {
	return &directory{logger: logger, read: read, now: time.Now, pause: pause, gone: map[string]bool{}}
}

// find returns the token with an id. known is false when there certainly is none: only a reading that began after the
// request came can say so, so that a new token works at once. An error means that nobody can say now. With anew, it
// needs such a reading for a known token too.
func (d *directory) find(ctx context.Context, id string, anew bool) (token access.Record, known bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	came := d.now()
	for {
		token, known = d.tokens[id]
		read := !d.readAt.IsZero()
		switch age := d.now().Sub(d.readAt); {
		case known && age < tokensFresh && !anew:
			return token, true, nil
		case (!known || anew) && read && d.readAt.After(came):
			return token, known, nil
		case ctx.Err() != nil, d.failed && d.now().Sub(d.triedAt) < tokensRetry:
			if !known || anew {
				return token, false, errTokensUnknown
			}
			return token, true, nil // the last known ones stay
		}
		gap := tokensGap
		if anew {
			gap = anewGap
		}
		d.refresh(ctx, gap)
	}
}

// refresh reads the tokens anew, waits for the reading that another request has begun, or until one may begin. The
// mutex is held; it is let go meanwhile.
func (d *directory) refresh(ctx context.Context, gap time.Duration) {
	if reading := d.reading; reading != nil {
		d.mu.Unlock()
		defer d.mu.Lock()
		select {
		case <-reading:
		case <-ctx.Done():
		}
		return
	}
	begun := d.now()
	if wait := d.triedAt.Add(gap).Sub(begun); wait > 0 && !d.triedAt.IsZero() {
		d.mu.Unlock()
		defer d.mu.Lock()
		d.pause(ctx, wait)
		return
	}
	reading := make(chan struct{})
	d.reading, d.triedAt = reading, begun
	d.mu.Unlock()
	// Others wait for it, so one client that goes away must not end it.
	readCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tokensTimeout)
	list, ended, err := d.read(readCtx)
	cancel()
	d.mu.Lock()
	d.reading, d.failed = nil, err != nil
	close(reading)
	if err != nil {
		d.triedAt = d.now()
		d.logger.Warn("The tokens cannot be read", zap.Error(err)) // here, and not for each request that asks for one
		return
	}
	d.ended = ended
	before := d.tokens
	d.tokens, d.readAt = make(map[string]access.Record, len(list)), begun
	for _, token := range list {
		if said, gone := d.gone[token.ID]; gone {
			d.gone[token.ID] = true
			if said {
				continue
			}
			d.logger.Error("A token that was revoked is in Temporal again, and is ignored: revoke it; if its return is "+
				"wanted, as after a mistake with a backup, start this process anew", zap.String("id", token.ID))
			continue
		}
		d.tokens[token.ID] = token
	}
	for id := range before {
		_, still := d.tokens[id]
		// A reading without any proves nothing: Temporal may not know its workflows for a moment.
		if !still && len(list) > 0 && len(d.gone) < goneKept {
			d.gone[id] = false
		}
	}
}

// over reports whether a session of a token was signed out, by a reading that is as fresh as find's.
func (d *directory) over(ctx context.Context, id, token string, opened time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.now().Sub(d.readAt) >= tokensFresh && ctx.Err() == nil &&
		!(d.failed && d.now().Sub(d.triedAt) < tokensRetry) {
		d.refresh(ctx, anewGap)
	}
	return access.EndsSession(d.ended, id, token, opened) || access.EndsSession(d.endedHere, id, token, opened)
}

// end notes that a session was signed out here.
func (d *directory) end(s access.EndedSession) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.endedHere) >= endedKept {
		d.endedHere = d.endedHere[1:]
	}
	d.endedHere = append(d.endedHere, s)
}

// pause waits for d or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

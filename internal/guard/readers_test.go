package guard

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/sdk/protocol"
)

// TestListsOfOneReaderRest has one viewer read without end, at many places at once: before, the store read for nobody
// else, and others' submissions waited 200 times as long.
func TestListsOfOneReaderRest(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		takes time.Duration
		reads int // in a minute
	}{
		"short reads":     {20 * time.Millisecond, int(time.Minute/8/(20*time.Millisecond)) + 12},
		"long reads":      {time.Second, 60/8 + 2},
		"very long reads": {4 * time.Second, 60/10 + 1}, // they count as a second, and so rest for six
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r, began := newReaders(), time.Now()
				var reading, reads, refused atomic.Int64
				for range 100 {
					go func() {
						for time.Since(began) < time.Minute {
							done, err := r.of("acme", "token")(t.Context())
							if err != nil {
								if code, _ := httpapi.Code(err); code != protocol.CodeRateLimited {
									t.Error(err)
								}
								refused.Add(1)
								continue
							}
							if reading.Add(1) > 1 {
								t.Error("one at a time")
							}
							<-time.After(tt.takes)
							if time.Since(began) < time.Minute {
								reads.Add(1)
							}
							reading.Add(-1)
							done()
						}
					}()
				}
				<-time.After(2 * time.Minute)
				synctest.Wait()
				require.InDelta(t, tt.reads, reads.Load(), 2)
				require.NotZero(t, refused.Load(), "who waits for long hears it")
			})
		})
	}
}

func TestOthersReadMeanwhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, began := newReaders(), time.Now()
		done, err := r.of("acme", "a")(t.Context())
		require.NoError(t, err)
		others, err := r.of("beta", "b")(t.Context())
		require.NoError(t, err)
		others()
		require.Zero(t, time.Since(began))
		gone, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = r.of("acme", "c")(gone)
		require.Error(t, err, "its client is gone")
		require.Equal(t, time.Second, time.Since(began))
		done()
		for range 10 { // a page with some lists is not held up
			next, err := r.of("beta", "b")(t.Context())
			require.NoError(t, err)
			<-time.After(20 * time.Millisecond)
			next()
		}
		require.Equal(t, 1200*time.Millisecond, time.Since(began))
		<-time.After(time.Minute)
		synctest.Wait()
	})
}

// TestARequestReadsToItsEnd: a search reads page after page. Only its next request waits for the rests.
func TestARequestReadsToItsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, began := newReaders(), time.Now()
		search := r.of("acme", "a")
		for range 5 {
			done, err := search(t.Context())
			require.NoError(t, err)
			<-time.After(time.Second)
			done()
		}
		require.Equal(t, 5*time.Second+4*shortRest, time.Since(began))
		_, err := r.of("acme", "a")(t.Context())
		require.Error(t, err)
		<-time.After(readShare * 5 * time.Second)
		done, err := r.of("acme", "a")(t.Context())
		require.NoError(t, err)
		done()
	})
}

// One who reads one list after another, each of which takes long, waits for each, and is never refused.
func TestWhoReadsAloneIsNeverRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newReaders()
		for range 10 {
			done, err := r.of("acme", "a")(t.Context())
			require.NoError(t, err)
			<-time.After(800 * time.Millisecond)
			done()
		}
	})
}

// TestOneClientDoesNotKeepItsTenantFromReading has one viewer ask for lists at 50 places at once.
func TestOneClientDoesNotKeepItsTenantFromReading(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newReaders()
		ctx, stop := context.WithCancel(t.Context())
		var viewers sync.WaitGroup
		for range 50 {
			viewers.Go(func() {
				for ctx.Err() == nil {
					if done, err := r.of("acme", "viewer")(ctx); err == nil {
						<-time.After(20 * time.Millisecond)
						done()
					}
				}
			})
		}
		for range 20 {
			<-time.After(time.Second)
			asked := time.Now()
			done, err := r.of("acme", "operator")(t.Context())
			require.NoError(t, err)
			require.Less(t, time.Since(asked), 400*time.Millisecond)
			done()
		}
		stop()
		viewers.Wait() // time stands still when the test has ended
	})
}

package activities

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"mainstay.dev/mainstay/internal/contract"
)

// A cluster that does not answer holds those who ask up for one look, and not for one after another.
func TestAFailedLookIsShared(t *testing.T) {
	t.Parallel()
	for name, rest := range map[string]time.Duration{"steps of runs": 0, "watches": watchRest} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var v views
				var looks atomic.Int32
				silent := errors.New("no answer")
				ask := func() error {
					_, err := v.since(t.Context(), "c", time.Now().Add(-settingsKnown), rest,
						func(context.Context, string) (contract.ClusterView, error) {
							looks.Add(1)
							<-time.After(5 * time.Second)
							return contract.ClusterView{}, silent
						})
					return err
				}
				began := time.Now()
				var asking sync.WaitGroup
				for range 50 {
					asking.Go(func() { assert.ErrorIs(t, ask(), silent) })
				}
				asking.Wait()
				assert.EqualValues(t, 1, looks.Load())
				assert.Equal(t, 5*time.Second, time.Since(began))
				<-time.After(time.Millisecond)
				assert.ErrorIs(t, ask(), silent)
				assert.EqualValues(t, 2, looks.Load(), "who asks later looks again")
			})
		})
	}
}

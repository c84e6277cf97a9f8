package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"mainstay.dev/mainstay/gateway"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
)

// slowTemporal takes its time for starts and descriptions.
type slowTemporal struct {
	*fakeTemporal
	start, describe time.Duration
}

func (s *slowTemporal) ExecuteWorkflow(
	ctx context.Context, o client.StartWorkflowOptions, workflow any, args ...any,
) (client.WorkflowRun, error) {
	if err := spend(ctx, s.start); err != nil {
		return nil, err
	}
	return s.fakeTemporal.ExecuteWorkflow(ctx, o, workflow, args...)
}

func (s *slowTemporal) DescribeWorkflowExecution(
	ctx context.Context, id, run string,
) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	if err := spend(ctx, s.describe); err != nil {
		return nil, err
	}
	return s.fakeTemporal.DescribeWorkflowExecution(ctx, id, run)
}

func spend(ctx context.Context, wait time.Duration) error {
	select {
	case <-time.After(wait):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// batches returns what submits, as a tenant, a batch of n tasks, and how long that took. The ids are the same each
// time.
func (s *slowTemporal) batches(t *testing.T) (submit func(tenant string, n int) (batchAnswer, time.Duration)) {
	t.Helper()
	s.withCluster(api.ClusterConfig{Name: "default"})
	server := httpapi.New(httpapi.Options{Gate: asTenant{}})
	gateway.New(gateway.Options{Store: store.Store{Client: s}, Registerer: prometheus.NewRegistry()}).
		Register(server.API())
	h := validated(t, server)
	return func(tenant string, n int) (batchAnswer, time.Duration) {
		var items []string
		for i := range n {
			items = append(items, fmt.Sprintf(`{"type":"x","cluster":"default","id":"n-%d"}`, i))
		}
		r := httptest.NewRequest(http.MethodPost, tasksPath+"/batch", strings.NewReader("["+strings.Join(items, ",")+"]"))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Tenant", tenant)
		w, begun := httptest.NewRecorder(), time.Now()
		h.ServeHTTP(w, r)
		var got batchAnswer
		assert.NoError(t, json.Unmarshal(w.Body.Bytes(), &got))
		return got, time.Since(begun)
	}
}

// The wait for the turn counted as part of the call to Temporal, so elements were refused as if Temporal were away, and
// all that came after them.
func TestElementsOfABatchWaitLongForTheirTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &slowTemporal{fakeTemporal: newFake(), start: 800 * time.Millisecond}
		submit := s.batches(t)
		var all sync.WaitGroup
		for n := range 8 {
			all.Go(func() {
				got, _ := submit(fmt.Sprint("t", n), 10)
				assert.Equal(t, 10, got.Accepted)
			})
		}
		all.Wait()
		require.LessOrEqual(t, int(s.mostStarts.Load()), store.BatchFanOut()/2)
	})
}

// Duplicates, which are described, kept the turn for that.
func TestDuplicatesOfABatchKeepNobodyWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &slowTemporal{fakeTemporal: newFake(), start: time.Millisecond, describe: time.Second}
		submit := s.batches(t)
		got, _ := submit("a", 100)
		require.Equal(t, 100, got.Accepted)
		var all sync.WaitGroup
		all.Go(func() {
			again, took := submit("a", 100)
			assert.Equal(t, 100, again.Accepted)
			assert.True(t, again.Tasks[99].Duplicate)
			assert.Greater(t, took, 2*time.Second)
		})
		<-time.After(time.Second / 2)
		got, took := submit("b", 100)
		require.Equal(t, 100, got.Accepted)
		require.Less(t, took, time.Second)
		all.Wait()
	})
}

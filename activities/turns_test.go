package activities_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	sdktestsuite "go.temporal.io/sdk/testsuite"

	"mainstay.dev/mainstay/activities"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
)

// listing is a Temporal that counts the lists of jobs that it is asked for at a time. Each takes until release is closed.
type listing struct {
	client.Client
	under, most, all atomic.Int32
	asked            chan struct{}
	release          chan struct{}
}

func (l *listing) ListWorkflow(
	ctx context.Context, _ *workflowservice.ListWorkflowExecutionsRequest,
) (*workflowservice.ListWorkflowExecutionsResponse, error) {
	l.all.Add(1)
	if n := l.under.Add(1); n > l.most.Load() {
		l.most.Store(n)
	}
	defer l.under.Add(-1)
	l.asked <- struct{}{}
	select {
	case <-l.release:
	case <-ctx.Done():
	}
	return &workflowservice.ListWorkflowExecutionsResponse{}, ctx.Err()
}

// However many runs of a tenant wait for services, a worker looks for them one after another, and other tenants' too.
func TestATenantLooksForServicesOneAfterAnother(t *testing.T) {
	t.Parallel()
	temporal := &listing{asked: make(chan struct{}, 100), release: make(chan struct{})}
	control := &activities.Control{Client: temporal, Namespace: "default"}
	look := func(tenant, service string) error {
		seen, err := control.LookAtInstances(t.Context(), contract.LookAtInstances{Job: "j",
			Definition: &api.JobDefinition{Tenant: tenant, Requires: &api.Requires{Services: []string{service}}}})
		if err == nil {
			require.Equal(t, []string{service}, seen.Missing)
		}
		return err
	}
	errs := make(chan error, 20)
	for range 20 {
		go func() { errs <- look("acme", "db") }()
	}
	<-temporal.asked
	for range 19 {
		select {
		case err := <-errs:
			require.ErrorContains(t, err, "another activity of it")
		case <-temporal.asked:
			require.Fail(t, "it looks twice at a time")
		}
	}
	go func() { errs <- look("beta", "db") }()
	<-temporal.asked // it does not wait for acme's
	require.EqualValues(t, 2, temporal.most.Load())
	close(temporal.release)
	require.NoError(t, <-errs)
	require.NoError(t, <-errs)
	for range 20 {
		require.NoError(t, look("acme", "db"), "it is known")
	}
	require.EqualValues(t, 2, temporal.all.Load())
	began := time.Now()
	require.ErrorContains(t, look("acme", "cache"), "another activity of it", "it rests")
	require.GreaterOrEqual(t, time.Since(began), time.Second)
}

// However many bulk operations a tenant has, a worker acts on a page of one at a time.
func TestATenantsBulkPagesComeOneAfterAnother(t *testing.T) {
	t.Parallel()
	temporal := &listing{asked: make(chan struct{}, 100), release: make(chan struct{})}
	control := &activities.Control{Client: temporal, Namespace: "default"}
	act := func(tenant string) error {
		var suite sdktestsuite.WorkflowTestSuite
		env := suite.NewTestActivityEnvironment()
		env.RegisterActivityWithOptions(control.BulkPage, activity.RegisterOptions{Name: contract.BulkPageActivity.Name})
		_, err := env.ExecuteActivity(contract.BulkPageActivity.Name, cancelling(api.TaskFilter{Tenant: tenant}))
		return err
	}
	errs := make(chan error, 5)
	for range 5 {
		go func() { errs <- act("acme") }()
	}
	<-temporal.asked
	for range 4 {
		select {
		case err := <-errs:
			require.ErrorContains(t, err, "another activity of it")
		case <-temporal.asked:
			require.Fail(t, "it acts on two pages at a time")
		}
	}
	go func() { errs <- act("beta") }()
	<-temporal.asked // it does not wait for acme's
	close(temporal.release)
	require.NoError(t, <-errs)
	require.NoError(t, <-errs)
	require.NoError(t, act("acme"))
}

// Package workflowtest is what tests of workflows share.
package workflowtest

import (
	"time"

	sdktestsuite "go.temporal.io/sdk/testsuite"
	sdkworker "go.temporal.io/sdk/worker"
)

// NewEnvironment makes the SDK's environment for the test of a workflow. On a busy machine a workflow may wait for
// seconds to be run; by default the SDK takes one second for a deadlock, and three without an event for a test that
// hangs.
func NewEnvironment() *sdktestsuite.TestWorkflowEnvironment {
	var suite sdktestsuite.WorkflowTestSuite
	env := suite.NewTestWorkflowEnvironment()
	env.SetWorkerOptions(sdkworker.Options{DeadlockDetectionTimeout: time.Minute})
	env.SetTestTimeout(time.Minute)
	return env
}

// Answer is how an update ended; it is known when the workflow has ended.
type Answer struct {
	Refused bool
	Err     error
	Value   any
}

// Accept is part of the SDK's callbacks.
func (a *Answer) Accept() {}

// Reject notes that the update was refused.
func (a *Answer) Reject(err error) { a.Refused, a.Err = true, err }

// Complete notes what the update answered.
func (a *Answer) Complete(value any, err error) { a.Value, a.Err = value, err }

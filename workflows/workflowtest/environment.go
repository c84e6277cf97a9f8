// Package workflowtest has what tests of workflows share.
package workflowtest

import (
	"time"

	sdktestsuite "go.temporal.io/sdk/testsuite"
	sdkworker "go.temporal.io/sdk/worker"

	"mainstay.dev/mainstay/internal/contract"
)

// NewEnvironment makes the SDK's environment for the test of a workflow, with longer limits for busy machines: by
// default the SDK takes one second without progress for a deadlock, and three seconds without an event for a hanging
// test.
func NewEnvironment() *sdktestsuite.TestWorkflowEnvironment {
	var suite sdktestsuite.WorkflowTestSuite
	env := suite.NewTestWorkflowEnvironment()
	env.SetWorkerOptions(sdkworker.Options{DeadlockDetectionTimeout: time.Minute})
	env.SetTestTimeout(time.Minute)
	env.SetDataConverter(contract.Payloads)
	env.SetFailureConverter(contract.Failures)
	return env
}

// Answer is the outcome of an update; it is known when the workflow has ended.
type Answer struct {
	Refused bool
	Err     error
	Value   any
}

// Accept is part of the SDK's callbacks.
func (a *Answer) Accept() {}

// Reject records that the update was refused.
func (a *Answer) Reject(err error) { a.Refused, a.Err = true, err }

// Complete records the update's answer.
func (a *Answer) Complete(value any, err error) { a.Value, a.Err = value, err }

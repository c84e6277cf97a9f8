package workflows

import (
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
)

// directTimeout bounds one call to a hub or a worker.
const directTimeout = 10 * time.Second

// Named is a wait with a description for readers of the history.
func Named(timeout time.Duration, why string) workflow.AwaitOptions {
	return workflow.AwaitOptions{Timeout: timeout, TimerOptions: workflow.TimerOptions{Summary: why}}
}

// Refuse is the error of an update that is not possible in the present state.
func Refuse(format string, args ...any) error {
	return temporal.NewNonRetryableApplicationError(fmt.Sprintf(format, args...), contract.Refused, nil)
}

// Unchanged is the error of an update that would change nothing. Its sender learns that it is done.
func Unchanged(format string, args ...any) error {
	return temporal.NewNonRetryableApplicationError(fmt.Sprintf(format, args...), contract.Refused, nil,
		contract.Unchanged)
}

// mostChanges is how often one run of a workflow takes changes that can be asked for without end. Temporal takes 2,000
// updates of it, and a cancellation is to find room; where it does not, Temporal itself is asked for one.
const mostChanges = 500

// Changes counts the changes by updates that one run of a workflow has taken, of those that can be asked for without
// end.
type Changes struct{ taken int }

// Take counts one.
func (c *Changes) Take() { c.taken++ }

// Refuse refuses another one if there were too many. Only validators of updates may ask.
func (c *Changes) Refuse() error {
	if c.taken < mostChanges {
		return nil
	}
	return Refuse("it was paused, resumed, given another priority or a step of it given up or rejected %d times, and "+
		"takes no more of that: it can still be cancelled", c.taken)
}

// ReasonOf returns an activity error's reason, in the words of the code that refused.
func ReasonOf(err error) string {
	var application *temporal.ApplicationError
	if errors.As(err, &application) {
		return application.Message()
	}
	return err.Error()
}

// IsType reports whether an error is an application error of that type.
func IsType(err error, kind string) bool {
	var application *temporal.ApplicationError
	return errors.As(err, &application) && application.Type() == kind
}

// announce publishes events of a cluster from another workflow. Losing an event changes nothing.
func announce(ctx workflow.Context, clusterName string, events ...cluster.Event) {
	ctx, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	for i := range events {
		events[i].Time = workflow.Now(ctx).UTC()
	}
	err := contract.AnnounceSignal.SendFrom(ctx, contract.ClusterWorkflowID(clusterName), "",
		contract.Announcement{Events: events}).Get(ctx, nil)
	if err != nil {
		workflow.GetLogger(ctx).Info("An event did not reach the cluster", "cluster", clusterName, "error", err)
	}
}

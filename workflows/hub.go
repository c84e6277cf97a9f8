// Package workflows holds the workflows: a file each, or a folder below for one of several files. They are
// deterministic: every decision is a pure function of fleet, every effect an activity. CONTRIBUTING.md, "Changing a
// workflow", says how to change one whose histories must still replay.
package workflows

import (
	"errors"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/contract"
)

const (
	// HubLease is how long a hub may be silent before the workflow checks whether it lives.
	HubLease = 10 * time.Second
	// hubAnswer is how long a silent hub has to answer. A restarted Temporal also times leases out; a living hub then
	// answers at once, and nothing is lost.
	hubAnswer = 5 * time.Second
	// HubNotice is how long after its last sign of life a hub counts as lost.
	HubNotice = HubLease + hubAnswer
	// leaseLength bounds one lease activity, to keep the history finite.
	leaseLength = 30 * 24 * time.Hour
)

// Hub holds one hub's lease as a heartbeating activity on the hub's own queue, which writes no history while all is
// well. When the hub is silent and does not answer, it reports the loss to the clusters and ends; the hub starts it
// again. A process of the hub that started meanwhile may have agents already: it learns of the loss with its lease.
func Hub(ctx workflow.Context, in contract.HubInput) (string, error) {
	started, lost := contract.HubStartedSignal.Inbox(ctx), false
	for {
		started.Take(func(contract.HubStarted) {})
		leaseCtx, release := workflow.WithCancel(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
			TaskQueue:              contract.HubQueue(in.Hub),
			ScheduleToStartTimeout: hubAnswer,
			StartToCloseTimeout:    leaseLength,
			HeartbeatTimeout:       HubLease,
			RetryPolicy:            &temporal.RetryPolicy{MaximumAttempts: 1},
			Summary:                "lease of hub " + in.Hub,
		}))
		lease := contract.HoldLeaseActivity.Execute(leaseCtx, contract.HoldLeaseInput{Hub: in.Hub, Lost: lost})
		err := workflow.Await(ctx, func() bool { return lease.IsReady() || started.Len() > 0 })
		if err != nil {
			release()
			return "", err
		}
		if !lease.IsReady() {
			release() // a new process of the hub started: hold its lease instead
			continue
		}
		_, leaseErr := lease.Get(ctx)
		lost = lost && didNotAnswer(leaseErr)
		if didNotAnswer(leaseErr) && started.Len() == 0 {
			if err := AnnounceHubLost(ctx, contract.HubLost{Hub: in.Hub, At: workflow.Now(ctx)}); err != nil ||
				started.Len() == 0 {
				return "lost", err
			}
			lost = true
		}
		if workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
			return "", workflow.NewContinueAsNewError(ctx, contract.HubWorkflow, in)
		}
	}
}

// didNotAnswer reports whether the hub did not take its lease; otherwise the lease must only be scheduled again.
func didNotAnswer(err error) bool {
	var timeout *temporal.TimeoutError
	return errors.As(err, &timeout) && timeout.TimeoutType() == enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START
}

// AnnounceHubLost signals to the clusters that a hub is lost.
func AnnounceHubLost(ctx workflow.Context, lost contract.HubLost) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:           contract.WorkerQueue,
		StartToCloseTimeout: 30 * time.Second,
		Summary:             "tell the clusters that hub " + lost.Hub + " is lost",
	})
	_, err := contract.AnnounceHubLostActivity.Execute(ctx, lost).Get(ctx)
	return err
}

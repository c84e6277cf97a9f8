package diagnosis

import (
	"time"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/sdk/api"
)

// WhyRetryWait says until when a task waits before its next attempt, and why; nil: it is not known until when.
func WhyRetryWait(next *time.Time, why string) string {
	switch {
	case next == nil:
		return why
	case why == "":
		return "backoff until " + clockTime(*next)
	}
	return "backoff until " + clockTime(*next) + ": " + why
}

// WhyReview says why a task waits for a person.
func WhyReview(why string) string {
	if why == "" {
		return ""
	}
	return "in review because " + why
}

// WhyDeadLetter says why a task is a dead letter and how long it can be retried.
func WhyDeadLetter(d *api.DeadLetter) string {
	return "dead letter because " + d.Cause + "; kept until " + clockTime(d.Until)
}

// ClusterUnknown is said of a queued task whose cluster does not answer.
const ClusterUnknown = "waiting for an agent; the state of its cluster is not known now"

// ForOthers is all that a tenant hears of a cluster that is not for it: how that stands is not for it to know.
const ForOthers = "its cluster is for others now: it fails as soon as an agent of the cluster is asked"

// WhyOfferedAgain says why no agent of the cluster could run a task when it was last offered, and when it is offered
// again; "" when one can by now.
func WhyOfferedAgain(c *cluster.Cluster, t *UnhandledTask, next *time.Time) string {
	why := WhyUnhandled(c, t)
	if why != "" && next != nil {
		why += "; it is offered again at " + clockTime(*next)
	}
	return why
}

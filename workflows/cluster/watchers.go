package cluster

import (
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
)

// watchers notifies jobs of changes of the members.
type watchers struct {
	quiet
	run   *run
	watch contract.Inbox[string]
	seen  uint64 // what the watchers know of the members
	gone  []string
}

func (w *watchers) open(ctx workflow.Context, _ contract.ClusterInput) {
	w.watch = contract.WatchMembersSignal.Inbox(ctx)
	w.seen = membersDigest(&w.run.state)
}

func (w *watchers) signalled() bool { return w.watch.Len() > 0 }

func (w *watchers) settle(ctx workflow.Context) {
	state := &w.run.state
	gone := w.gone
	w.gone = nil
	state.Watchers = slices.DeleteFunc(state.Watchers, func(job string) bool { return slices.Contains(gone, job) })
	w.watch.Take(func(job string) {
		if len(state.Watchers) == 0 {
			w.seen = 0 // nobody looked until now
		}
		state.Watch(job)
	})
	if len(state.Watchers) == 0 {
		return
	}
	digest := membersDigest(state)
	if digest == w.seen {
		return
	}
	w.seen = digest
	for _, job := range state.Watchers {
		notified := contract.AgentsMovedSignal.SendFrom(ctx, contract.JobWorkflowID(job), "", state.Config.Name)
		workflow.Go(ctx, func(ctx workflow.Context) {
			if notified.Get(ctx, nil) != nil && ctx.Err() == nil {
				w.gone = append(w.gone, job) // it was deleted
			}
		})
	}
}

// membersDigest changes with all that decides which agents may have an instance of a job.
func membersDigest(c *cluster.Cluster) uint64 {
	if len(c.Watchers) == 0 {
		return 0
	}
	h := fnv.New64a()
	for i := range c.Members {
		m := &c.Members[i]
		_, _ = h.Write([]byte(strings.Join([]string{m.AgentID, strconv.FormatBool(m.Serving()),
			strconv.FormatBool(c.Cordons.Of(m.AgentID) != nil), m.Zone, strconv.FormatBool(m.EndsProcessTrees),
			strings.Join(m.Capabilities, " "), strings.Join(m.TaskTypes, " ")}, "\n")))
	}
	return h.Sum64()
}

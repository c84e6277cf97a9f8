package overview

import (
	"context"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/diagnosis"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/protocol"
)

// overviewUnhandled is how many of the tasks that no agent could run are read.
const overviewUnhandled = 200

// unhandled are the open tasks that no agent could run when they were last offered.
type unhandled struct {
	byCluster map[string][]diagnosis.UnhandledTask
	more      bool // there are others, submitted before these
}

func (h *Handlers) unhandledTasks(ctx context.Context) (u unhandled, err error) {
	query := contract.TaskQuery(&fleet.TaskFilter{Status: contract.TaskUnhandled})
	tasks, next, err := h.Store.Tasks().Page(ctx, query, overviewUnhandled, nil)
	if err != nil {
		return unhandled{}, h.Answer(err, "list tasks that no agent handles", protocol.CodeNotFound)
	}
	u = unhandled{byCluster: map[string][]diagnosis.UnhandledTask{}, more: len(next) > 0}
	for i := range tasks {
		t := &tasks[i]
		task := diagnosis.UnhandledTask{Type: t.Type, Agent: t.Agent, Capabilities: t.Capabilities, Safety: t.Safety,
			Place: t.Place,
			Since: t.MarkedAt}
		u.byCluster[t.Cluster] = append(u.byCluster[t.Cluster], task)
	}
	return u, nil
}

// unhandled tells of those tasks that the clusters' agents cannot run as they are now: an agent may have come that can.
func (b *overviewBuilder) unhandled(views []contract.ClusterView, u unhandled, err error) {
	if err != nil {
		b.missing("which tasks no agent handles")
		return
	}
	for i := range views {
		problems := diagnosis.OfUnhandled(&views[i].Cluster, u.byCluster[views[i].Config.Name])
		for j := range problems {
			if u.more {
				problems[j].Why = fleet.Reasons(problems[j].Why, onlyNewest)
			}
		}
		b.Problems = append(b.Problems, problems...)
	}
}

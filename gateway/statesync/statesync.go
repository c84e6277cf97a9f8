// Package statesync compares the states of a cluster's members, and has them made the same.
package statesync

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// Handlers answer the requests.
type Handlers struct{ *rest.Core }

// syncWait is how long the start of a state sync waits for its end.
const syncWait = 5 * time.Second

// Register adds the operations.
func (h *Handlers) Register(routes rest.API) {
	r := rest.On(routes, "Clusters")
	rest.Serve(r, "sync-cluster", "POST /clusters/{id}/sync", "Make the states of a cluster's members the same",
		"For active_passive and sharded clusters, whose members do it by themselves when their states differ. What "+
			"the leader wrote is sent to the members that lack it. "+
			"Answers with the report when it has ended, or with the one that is running after 5 s. One that is "+
			"under way is joined.",
		h.start)
	rest.Serve(r, "get-cluster-sync", "GET /clusters/{id}/sync", "Compare the states of a cluster's members",
		"By the digests that their heartbeats tell. Answers 501 not_supported when Temporal has no standalone activities.",
		h.compare, rest.Wide)
}

func (h *Handlers) start(
	ctx context.Context, in *rest.To[*api.ReasonRequest],
) (newest api.SyncReport, err error) {
	view, err := h.View(ctx, in.ID)
	if err != nil {
		return newest, err
	}
	if view.Config.ReplicationMode == api.ActiveActive {
		return newest, httpapi.Problem(protocol.CodeConflict, "the cluster is active_active: its members share no state")
	}
	input := contract.SyncInput{Cluster: in.ID, Reason: cmp.Or(in.Body.Text(), "asked for by hand")}
	_, err = h.Store.Start(ctx, &store.Start{
		Type:    contract.StateSyncWorkflow,
		ID:      contract.SyncWorkflowID(in.ID),
		Summary: "state sync: " + input.Reason,
		Cluster: in.ID,
		Join:    true,
		Timeout: 5 * time.Minute,
	}, input)
	if err != nil {
		return newest, h.Answer(err, "start a state sync", protocol.CodeInternal)
	}
	err = h.WaitUntil(ctx, syncWait, "wait for a state sync", func(ctx context.Context, _ bool) (bool, error) {
		report, err := h.lastSync(ctx, in.ID)
		if err != nil || report == nil {
			return true, h.Answer(err, "read a state sync", protocol.CodeInternal)
		}
		newest = *report
		return report.Status != api.SyncRunning, nil
	})
	return newest, err
}

// lastSync is the report of a cluster's newest state sync; nil: there is none.
func (h *Handlers) lastSync(ctx context.Context, cluster string) (*api.SyncReport, error) {
	syncs := store.Records[api.SyncReport]{Store: h.Store, Query: contract.SyncQuery, Partial: partialSync}
	report, err := syncs.Get(ctx, contract.SyncWorkflowID(cluster))
	if store.KindOf(err) == store.NotFound {
		return nil, nil
	}
	return &report, h.Answer(err, "describe a state sync", protocol.CodeInternal)
}

// partialSync is what Temporal itself knows of a state sync.
func partialSync(k store.Known) (api.SyncReport, bool) {
	cluster, ok := contract.SyncOfWorkflowID(k.WorkflowID)
	return api.SyncReport{Cluster: cluster, Status: store.Standing(k, api.SyncRunning, api.SyncFailed),
		Why: k.Why, Members: []api.MemberSync{}, StartedAt: k.StartedAt}, ok
}

// compare asks the hubs what their agents reported in heartbeats.
func (h *Handlers) compare(ctx context.Context, in *rest.ByID) (api.ClusterSync, error) {
	view, err := h.View(ctx, in.ID)
	if err != nil {
		return api.ClusterSync{}, err
	}
	c := &view.Cluster
	byHub, err := rest.AskHubs(ctx, h.Core, contract.ReadStatesActivity, c, "", "states", contract.ReadStatesID,
		contract.ReadStatesInput{Cluster: c.Config.Name})
	if err != nil {
		return api.ClusterSync{}, err
	}
	known := map[string]*api.StateSummary{}
	for _, states := range byHub {
		for _, agent := range states.Agents {
			known[agent.AgentID] = agent.State
		}
	}
	answer := compareSummaries(c, known)
	last, err := h.lastSync(ctx, c.Config.Name)
	if err != nil {
		return api.ClusterSync{}, err
	}
	if last != nil {
		last.Members = []api.MemberSync{}
		answer.LastSync = last
	}
	return answer, nil
}

// compareSummaries compares the members' states with the leader's, or where there is none with the newest.
func compareSummaries(c *cluster.Cluster, known map[string]*api.StateSummary) api.ClusterSync {
	answer := api.ClusterSync{Cluster: c.Config.Name, Members: []api.MemberSync{}}
	measure := known[c.Leader]
	for i := range c.Members {
		s := known[c.Members[i].AgentID]
		if c.Config.ReplicationMode != api.ActivePassive && s != nil &&
			(measure == nil || s.Version.Newer(measure.Version)) {
			measure = s
		}
	}
	keep, differ := 0, 0
	for i := range c.Members {
		m := &c.Members[i]
		state := known[m.AgentID]
		row := api.MemberSync{AgentID: m.AgentID, Role: c.RoleOf(m.AgentID), Hub: m.Hub, State: state}
		switch {
		case !m.Connected():
			row.Why = "it is not connected"
		case state == nil:
			row.Why = "it keeps no state, or its hub did not answer"
		default:
			keep++
			if measure == nil {
				measure = state
			}
			if row.Consistent = state.Digest == measure.Digest; !row.Consistent {
				differ++
				row.Behind = max(0, measure.Entries-state.Entries)
				row.Why = "its state differs"
			}
		}
		answer.Members = append(answer.Members, row)
	}
	answer.Consistent = differ == 0
	switch {
	case c.Config.ReplicationMode == api.ActiveActive:
		answer.Why = "the cluster is active_active: its members share no state"
	case keep == 0:
		answer.Why = "no connected member keeps state"
	case differ == 0:
		answer.Why = fmt.Sprintf("all %d connected members that keep state have the same", keep)
	default:
		answer.Why = fmt.Sprintf("%d of %d connected members that keep state differ", differ, keep)
	}
	return answer
}

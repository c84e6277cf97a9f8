package activities

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/healing"
	"mainstay.dev/mainstay/internal/scaling"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
)

// SweepScaling looks at every cluster that has scaling on, and asks those where something is to be done. Where nothing
// is, nothing is written.
func (a *Control) SweepScaling(ctx context.Context) (contract.SweepResult, error) {
	var result contract.SweepResult
	names, err := a.clusters().Scaled(ctx)
	if err != nil || len(names) == 0 {
		return result, err
	}
	read, err := a.clusters().Facts(ctx, names...)
	if err != nil {
		return result, err
	}
	result.Clusters = len(names)
	fail := func(cluster, why string) {
		if result.Failed == nil {
			result.Failed = map[string]string{}
		}
		result.Failed[cluster] = why
	}
	for _, silent := range read.Silent {
		fail(silent, "it did not answer")
	}
	for i := range read.Clusters {
		name := read.Clusters[i].Config.Name
		activity.RecordHeartbeat(ctx, name)
		decision, err := a.sweepOne(ctx, &read.Clusters[i])
		switch {
		case err != nil:
			fail(name, err.Error())
		case decision.Change != api.ScaleNone:
			if result.Acted == nil {
				result.Acted = map[string]cluster.ScalingDecision{}
			}
			result.Acted[name] = decision
		}
	}
	return result, nil
}

// sweepOne decides for one cluster. If there is something to do, the cluster decides too: it alone knows what is under
// way.
func (a *Control) sweepOne(ctx context.Context, c *healing.ClusterFacts) (cluster.ScalingDecision, error) {
	decision, facts, err := a.decide(ctx, c)
	if err != nil || decision.Change == api.ScaleNone {
		return decision, err
	}
	id := contract.ClusterWorkflowID(c.Config.Name)
	decision, err = contract.ScaleUpdate.Send(ctx, a.Client, id, contract.ScaleRequest{Facts: &facts})
	if err != nil {
		return decision, fmt.Errorf("scale cluster %s: %w", c.Config.Name, err)
	}
	return decision, nil
}

func (a *Control) decide(
	ctx context.Context, c *healing.ClusterFacts,
) (cluster.ScalingDecision, scaling.ScalingFacts, error) {
	facts := scaling.ScalingFacts{}
	for agent, live := range c.Live {
		facts.Agents = append(facts.Agents, scaling.AgentActivity{AgentID: agent, Running: live.Running,
			IdleSince: live.WorkedAt, CPUPercent: live.CPUPercent})
	}
	slices.SortFunc(facts.Agents, func(x, y scaling.AgentActivity) int { return x.IdleSince.Compare(y.IdleSince) })
	now := time.Now()
	decision, err := a.clusters().CompleteScaling(ctx, &c.Cluster, &facts,
		func() cluster.ScalingDecision { return scaling.DecideScaling(&c.Cluster, &facts, now) })
	return decision, facts, err
}

// ReadScaling reads the facts about one cluster that change every second.
func (a *Control) ReadScaling(ctx context.Context, cluster string) (scaling.ScalingFacts, error) {
	read, err := a.clusters().Facts(ctx, cluster)
	if err != nil {
		return scaling.ScalingFacts{}, err
	}
	if len(read.Clusters) != 1 {
		return scaling.ScalingFacts{}, fmt.Errorf("cluster %s did not answer", cluster)
	}
	_, found, err := a.decide(ctx, &read.Clusters[0])
	return found, err
}

// joinedMost is the longest pause between two looks at agents that are not online yet.
const joinedMost = time.Second

// AwaitJoined returns when all agents are online, or the time is over.
func (a *Control) AwaitJoined(ctx context.Context, in contract.AwaitJoinedInput) (contract.AwaitJoinedResult, error) {
	deadline := activity.GetInfo(ctx).StartedTime.Add(in.Timeout.Std())
	result := contract.AwaitJoinedResult{Joined: map[string]time.Time{}}
	err := watchUntil(ctx, joinedMost, func() (bool, error) {
		view, err := a.view(ctx, in.Cluster)
		late := time.Now().After(deadline)
		if err != nil && ctx.Err() == nil && late {
			return false, err
		}
		for _, agent := range in.Agents {
			if m := view.Member(agent); m != nil && m.Connected() && result.Joined[agent].IsZero() {
				result.Joined[agent] = time.Now().UTC()
			}
		}
		return late || len(result.Joined) == len(in.Agents), nil
	})
	return result, err
}

// view asks a cluster how it stands.
func (a *Control) view(ctx context.Context, cluster string) (contract.ClusterView, error) {
	view, err := a.clusters().View(ctx, cluster)
	if err != nil {
		return view, fmt.Errorf("look at cluster %s: %w", cluster, err)
	}
	return view, nil
}

// Retire has a cluster forget an agent that was stopped for good. It is tried again while the agent is still connected;
// where the cluster is gone, so is the agent.
func (a *Control) Retire(ctx context.Context, in contract.ClusterRetire) error {
	_, err := contract.RetireUpdate.Send(ctx, a.Client, contract.ClusterWorkflowID(in.Cluster), in.Request)
	switch kind := store.KindOf(err); {
	case kind == store.NotFound:
		return nil
	case kind == store.Refused:
		return temporal.NewApplicationError(store.Refusal(err), contract.Refused)
	case err != nil:
		return fmt.Errorf("retire %s of cluster %s: %w", in.Request.AgentID, in.Cluster, err)
	}
	return nil
}

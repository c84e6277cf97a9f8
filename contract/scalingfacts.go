package contract

import (
	"context"
	"fmt"

	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"mainstay.dev/mainstay/fleet"
)

// pinnedLooks bounds how many agents are looked at for pinned work in one decision.
const pinnedLooks = 200

// CompleteScaling adds to facts, which have the agents' loads, what else a scaling decision needs: the backlog, and whether
// work is pinned to the agents that would be stopped.
func CompleteScaling(ctx context.Context, c client.Client, namespace string, cluster *fleet.Cluster, facts *fleet.ScalingFacts, decide func() fleet.ScalingDecision) (fleet.ScalingDecision, error) {
	var err error
	if facts.Queue, err = ScalingBacklog(ctx, c, namespace, cluster); err != nil {
		return fleet.ScalingDecision{}, err
	}
	known := map[string]bool{}
	for {
		d := decide()
		if d.Change != fleet.ScaleDown || d.Rule == fleet.RuleRetire {
			return d, nil
		}
		pinned := false
		for _, agent := range d.Agents {
			if known[agent] {
				continue
			}
			if len(known) >= pinnedLooks {
				return fleet.ScalingDecision{}, fmt.Errorf("work is pinned to more than %d agents that could be stopped", pinnedLooks)
			}
			known[agent] = true
			has, err := hasPinnedWork(ctx, c, namespace, agent)
			if err != nil {
				return fleet.ScalingDecision{}, err
			}
			pinned = pinned || has && facts.Pin(agent)
		}
		if !pinned {
			return d, nil
		}
	}
}

// hasPinnedWork reports whether open tasks can run on one agent only. Visibility may be a second behind.
func hasPinnedWork(ctx context.Context, c client.Client, namespace, agent string) (bool, error) {
	found, err := c.CountWorkflow(ctx, &workflowservice.CountWorkflowExecutionsRequest{
		Namespace: namespace, Query: OpenTaskQuery(&fleet.TaskFilter{Agent: agent}),
	})
	if err != nil {
		return false, fmt.Errorf("count the tasks that are pinned to %s: %w", agent, err)
	}
	return found.GetCount() > 0, nil
}

// ScaledClusters are the names of the clusters that have scaling on, as visibility knows them.
func ScaledClusters(ctx context.Context, c client.Client, namespace string) ([]string, error) {
	var names []string
	for info, err := range Workflows(ctx, c, namespace, OpenClusters()) {
		if err != nil {
			return nil, fmt.Errorf("list clusters: %w", err)
		}
		if name, ok := ClusterOfWorkflowID(info.GetExecution().GetWorkflowId()); ok && scalingOn(info) {
			names = append(names, name)
		}
	}
	return names, nil
}

// scalingOn reads a cluster's memo. One without was started by other means, and is asked.
func scalingOn(info *workflowpb.WorkflowExecutionInfo) bool {
	config, ok := ConfigOf(info)
	return !ok || config.Scaling.On()
}

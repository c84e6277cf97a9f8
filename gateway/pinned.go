package gateway

import (
	"context"
	"strings"

	enumspb "go.temporal.io/api/enums/v1"

	"mainstay.dev/mainstay/contract"
)

const (
	// pinnedPage is how many tasks one look reads; each look leaves out the agents that are known.
	pinnedPage = 1000
	// pinnedLooks bounds the looks of one request: agents whose pinned work is hidden behind so much of others' is left out.
	pinnedLooks = 5
)

// pinnedAgents are the agents to which open tasks are pinned, by cluster; of all clusters when only is empty.
func (g *Gateway) pinnedAgents(ctx context.Context, only string) (map[string][]string, error) {
	agent, cluster := contract.AttrAgent.GetName(), contract.AttrCluster.GetName()
	pinned := map[string][]string{}
	var known []string
	for range pinnedLooks {
		var others string
		if len(known) > 0 {
			others = agent + " NOT IN (" + strings.Join(known, ", ") + ")"
		}
		found, next, err := pageOf(ctx, g, "list pinned tasks", g.store.Page, allOf(contract.Equals("WorkflowType", contract.TaskWorkflow),
			contract.ExecutionIs(enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING), agent+" > ''", filter(cluster, only), others), pinnedPage, "")
		if err != nil {
			return nil, err
		}
		seen := map[[2]string]bool{}
		for _, info := range found {
			attributes := info.GetSearchAttributes().GetIndexedFields()
			key := [2]string{contract.Keyword(attributes, contract.AttrCluster), contract.Keyword(attributes, contract.AttrAgent)}
			if key[1] == "" || seen[key] {
				continue
			}
			seen[key] = true
			pinned[key[0]] = append(pinned[key[0]], key[1])
			known = append(known, contract.Quoted(key[1]))
		}
		if next == "" {
			break
		}
	}
	return pinned, nil
}

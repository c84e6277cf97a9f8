package store

import (
	"context"
	"fmt"
	"strings"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
)

const (
	// pinnedPage is how many tasks one look reads; each look leaves out the agents that are known.
	pinnedPage = 1000
	// pinnedPages bounds the looks of one request: agents whose pinned work is hidden behind so much of others' is left
	// out.
	pinnedPages = 5
)

// Pinned are the agents to which open tasks are pinned, by cluster; of all clusters when only is empty.
func (s Tasks) Pinned(ctx context.Context, only string) (map[string][]string, error) {
	agent := contract.AttrAgent.GetName()
	pinned := map[string][]string{}
	var known []string
	for range pinnedPages {
		query := contract.OpenTaskQuery(&fleet.TaskFilter{Cluster: only}) + " AND " + agent + " > ''"
		if len(known) > 0 {
			query += " AND " + agent + " NOT IN (" + strings.Join(known, ", ") + ")"
		}
		found, next, err := s.Store.Page(ctx, query, pinnedPage, nil)
		if err != nil {
			return nil, fmt.Errorf("list pinned tasks: %w", err)
		}
		seen := map[[2]string]bool{}
		for _, info := range found {
			attributes := info.GetSearchAttributes().GetIndexedFields()
			key := [2]string{contract.Keyword(attributes, contract.AttrCluster),
				contract.Keyword(attributes, contract.AttrAgent)}
			if key[1] == "" || seen[key] {
				continue
			}
			seen[key] = true
			pinned[key[0]] = append(pinned[key[0]], key[1])
			known = append(known, contract.Quoted(key[1]))
		}
		if len(next) == 0 {
			break
		}
	}
	return pinned, nil
}

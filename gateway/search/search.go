// Package search finds things of all kinds by their name, or the beginning of their id.
package search

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/parallel"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
	"mainstay.dev/sdk/spelling"
)

// Handlers answer the requests.
type Handlers struct{ *rest.Core }

type searchInput struct {
	Text string `query:"text" required:"true" minLength:"1" maxLength:"255" doc:"A part of a name, or the beginning of an id."`
}

const (
	// most is how many of a kind are answered.
	most = 20
	// namesPage is how many jobs, and how many schedules, are looked at, a page at a time, and namesPages how often.
	namesPage, namesPages = 1000, 10
)

// Register adds the operation.
func (h *Handlers) Register(routes rest.API) {
	rest.Serve(rest.On(routes, "Search").Scoped(), "search", "GET /search", "Search for things of all kinds",
		"Clusters, agents, jobs, services and schedules with the text in their name, and tasks, runs, arrays, bulk "+
			"operations, failovers and drains whose id begins so; up to 20 of each. If there is none, near has "+
			"names that are spelt nearly so. `GET /tasks?text=` searches all that lists show of tasks.",
		func(ctx context.Context, in *searchInput) (out api.SearchResult, err error) {
			return h.search(ctx, strings.TrimSpace(in.Text))
		})
}

func (h *Handlers) search(ctx context.Context, text string) (out api.SearchResult, err error) {
	out = api.SearchResult{Found: []api.Found{}, Near: []api.Found{}}
	if err := rest.ReservePage(ctx, namesPage); err != nil {
		return out, err
	}
	looks := []func(context.Context, string) ([]api.Found, error){h.jobs, h.schedules, h.ids, h.part}
	if !rest.Limited(ctx) {
		looks = append(looks, h.fleet)
	}
	named, errs := make([][]api.Found, len(looks)), make([]error, len(looks))
	parallel.Each(len(looks), len(looks), func(i int) { named[i], errs[i] = looks[i](ctx, text) })
	for _, err := range errs {
		if err != nil {
			return out, h.Answer(err, "search", protocol.CodeNotFound)
		}
	}
	all := slices.Concat(named...)
	lower := strings.ToLower(text)
	for i := range all {
		if strings.Contains(strings.ToLower(all[i].ID), lower) {
			out.Found = append(out.Found, all[i])
		}
	}
	rank := func(f api.Found) int {
		switch id := strings.ToLower(f.ID); {
		case id == lower:
			return 0
		case strings.HasPrefix(id, lower):
			return 1
		}
		return 2
	}
	slices.SortStableFunc(out.Found, func(a, b api.Found) int {
		return cmp.Or(rank(a)-rank(b), strings.Compare(a.Kind, b.Kind))
	})
	out.Found = few(out.Found)
	if len(out.Found) == 0 {
		out.Near = near(text, all)
	}
	return out, nil
}

// few keeps only the first few results of each kind.
func few(found []api.Found) []api.Found {
	of := map[string]int{}
	return slices.DeleteFunc(found, func(f api.Found) bool {
		of[f.Kind]++
		return of[f.Kind] > most
	})
}

// near are the names that somebody may have meant, one of each kind.
func near(text string, all []api.Found) []api.Found {
	names := map[string][]string{}
	for _, f := range all {
		names[f.Kind] = append(names[f.Kind], f.ID)
	}
	return slices.DeleteFunc(slices.Clone(all), func(f api.Found) bool {
		return f.ID != spelling.Nearest(text, names[f.Kind])
	})
}

// fleet are the clusters and agents.
func (h *Handlers) fleet(ctx context.Context, _ string) (found []api.Found, err error) {
	views, _, err := h.Views(ctx, "")
	for i := range views {
		cluster := views[i].Config.Name
		found = append(found, api.Found{Kind: "cluster", ID: cluster})
		for m := range views[i].Members {
			found = append(found, api.Found{Kind: "agent", ID: views[i].Members[m].AgentID, Cluster: cluster})
		}
	}
	return found, err
}

// jobs are the jobs, and the services that some of them are.
func (h *Handlers) jobs(ctx context.Context, _ string) (found []api.Found, err error) {
	query := rest.AllOf(store.JobsQuery, rest.Filter(contract.AttrTenant, access.From(ctx).Tenant))
	var token []byte
	for range namesPages {
		jobs, next, err := rest.InTurn(h.Store.Jobs().Page)(ctx, query, namesPage, token)
		if err != nil {
			return nil, err
		}
		for i := range jobs {
			j := &jobs[i]
			found = append(found, api.Found{Kind: "job", ID: j.Name, Type: string(j.Type), Cluster: j.Cluster})
			if j.Service != "" {
				found = append(found, api.Found{Kind: "service", ID: api.Qualify(j.Tenant, j.Service), Cluster: j.Cluster})
			}
		}
		if token = next; len(next) == 0 {
			break
		}
	}
	return found, nil
}

// schedules finds schedules of tasks.
func (h *Handlers) schedules(ctx context.Context, _ string) (found []api.Found, err error) {
	query := rest.AllOf(contract.AttrTaskType.GetName()+" IS NOT NULL",
		rest.Filter(contract.AttrTenant, access.From(ctx).Tenant))
	var token []byte
	for range namesPages {
		page, next, err := h.Store.Schedules(ctx, query, namesPage, token)
		if err != nil {
			return nil, err
		}
		for _, entry := range page {
			fields := entry.GetSearchAttributes().GetIndexedFields()
			if name, ours := contract.ScheduleOfID(entry.GetScheduleId()); ours {
				found = append(found, api.Found{Kind: "schedule", ID: name,
					Type:    contract.Keyword(fields, contract.AttrTaskType),
					Cluster: contract.Keyword(fields, contract.AttrCluster)})
			}
		}
		if token = next; len(next) == 0 {
			break
		}
	}
	return found, nil
}

// kinds are the things that are found by the beginning of their id, and how to get their id from a workflow's id.
var kinds = []struct {
	name, prefix string
	id           func(workflowID string) (string, bool)
	pair         bool // the id has colons where the workflow's has slashes
}{
	{"task", "task/", contract.TaskOfWorkflowID, false},
	{"run", "run/", contract.RunOfWorkflowID, false},
	{"array", "array/", contract.ArrayOfWorkflowID, false},
	{"bulk", "bulk/", contract.BulkOfWorkflowID, false},
	{"failover", "failover/", contract.FailoverOfWorkflowID, true},
	{"drain", "drain/", contract.DrainOfWorkflowID, true},
}

// ids finds things by the beginning of their id.
func (h *Handlers) ids(ctx context.Context, text string) ([]api.Found, error) {
	own, ok := rest.OwnID(ctx, text)
	if !ok {
		return nil, nil
	}
	found, errs := make([][]api.Found, len(kinds)), make([]error, len(kinds))
	parallel.Each(len(kinds), len(kinds), func(i int) {
		k := kinds[i]
		begin := own
		if k.pair {
			begin = strings.ReplaceAll(text, ":", "/")
		}
		infos, _, err := h.Store.Page(ctx, rest.AllOf("WorkflowId STARTS_WITH "+contract.Quoted(k.prefix+begin),
			rest.Filter(contract.AttrTenant, access.From(ctx).Tenant)), most, nil)
		errs[i] = err
		for _, info := range infos {
			fields := info.GetSearchAttributes().GetIndexedFields()
			if id, ok := k.id(info.GetExecution().GetWorkflowId()); ok {
				found[i] = append(found[i], api.Found{Kind: k.name, ID: id,
					Type:    contract.Keyword(fields, contract.AttrTaskType),
					Cluster: contract.Keyword(fields, contract.AttrCluster)})
			}
		}
		found[i] = slices.CompactFunc(found[i], func(a, b api.Found) bool { return a.ID == b.ID })
	})
	return slices.Concat(found...), cmp.Or(errs...)
}

// part is the task of a step, an element or an instance, by its whole id.
func (h *Handlers) part(ctx context.Context, text string) ([]api.Found, error) {
	id, err := rest.OwnTask(ctx, text)
	if _, key := contract.Locate(id); err != nil || key == "" {
		return nil, nil //nolint:nilerr // it is no task's id
	}
	t, err := h.Store.Tasks().Describe(ctx, id)
	if err != nil || !rest.Sees(ctx, t.Tenant) {
		return nil, nil //nolint:nilerr // as a rule there is none
	}
	return []api.Found{{Kind: "task", ID: id, Type: t.Type, Cluster: t.Cluster}}, nil
}

// Package service finds the instances of services for clients.
package service

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/parallel"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// fresh is how long the hubs' answers about instances are used again.
const fresh = time.Second

// Handlers answer the requests.
type Handlers struct {
	*rest.Core

	mu    sync.Mutex // held while hubs are asked, so that many who wait ask once
	found []contract.FoundInstance
	until time.Time
}

type getInput struct {
	Name   string `path:"name"`
	Health string `query:"health" enum:"passing,any" doc:"passing (the default): only instances that are well. any: all that run."`
	Tag    string `query:"tag" maxLength:"63" doc:"Only instances with this tag."`
	Zone   string `query:"zone" maxLength:"63" doc:"Only instances on agents of this zone."`
	Role   string `query:"role" enum:"stable,canary" doc:"Only instances of versions that are promoted (stable), or of one that is not yet (canary)."`
	Wait   string `query:"wait" maxLength:"32" doc:"With index: how long to hold the answer until the instances change, up to 60s."`
	Index  string `query:"index" maxLength:"64" doc:"The index of an earlier answer."`
}

// Register adds the operations.
func (h *Handlers) Register(routes rest.API) {
	r := rest.On(routes, "Services").Scoped()
	rest.List(r, "services", "list-services", "GET /services", "List services",
		"Those that have an instance now, and those of the newest 1,000 jobs.", h.list, rest.Wide)
	rest.Serve(r, "get-service", "GET /services/{name}", "Find the instances of a service",
		"Only those that are healthy, unless health=any. A service without such an instance has an empty list. "+
			"What is answered is at most about a second old.", h.get, rest.Held)
}

func (h *Handlers) list(ctx context.Context, _ *struct{}) (page rest.Page[api.Service], err error) {
	found, err := h.read(ctx)
	if err != nil {
		return page, err
	}
	for i := range found { // sorted by service
		name := found[i].ServiceName()
		if tenant, _ := api.CutTenant(name); !rest.Sees(ctx, tenant) {
			continue
		}
		n := len(page.Items)
		if n == 0 || page.Items[n-1].Name != name {
			page.Items = append(page.Items, api.Service{Name: name})
			n++
		}
		service := &page.Items[n-1]
		service.Instances++
		if found[i].Checked == api.InstancePassing {
			service.Passing++
		}
	}
	page.Items, err = h.withIdle(ctx, page.Items)
	return page, err
}

// jobsPage is how many jobs are looked at for services without an instance.
const jobsPage = 1000

// withIdle adds the services that have no instance now.
func (h *Handlers) withIdle(ctx context.Context, services []api.Service) ([]api.Service, error) {
	query := rest.AllOf(store.JobsQuery, rest.Filter(contract.AttrTenant, access.From(ctx).Tenant))
	jobs, err := rest.PageOf(ctx, h.Core, "list jobs", h.Store.Jobs().Page, query,
		rest.RecordPageInput{PageSize: jobsPage})
	byName := func(s api.Service, name string) int { return strings.Compare(s.Name, name) }
	for i := range jobs.Items {
		name := api.Qualify(jobs.Items[i].Tenant, jobs.Items[i].Service)
		at, has := slices.BinarySearchFunc(services, name, byName)
		if jobs.Items[i].Service != "" && !has {
			services = slices.Insert(services, at, api.Service{Name: name})
		}
	}
	return services, err
}

func (h *Handlers) get(ctx context.Context, in *getInput) (out api.ServiceInstances, err error) {
	wait, err := rest.ParseWait(in.Wait)
	if err != nil {
		return out, err
	}
	name, own := rest.OwnID(ctx, in.Name)
	if !own {
		return out, httpapi.Problem(protocol.CodeNotFound, "no such service")
	}
	if in.Index == "" {
		wait = 0
	}
	err = h.WaitUntil(ctx, wait, "find instances", func(ctx context.Context, _ bool) (bool, error) {
		out = api.ServiceInstances{Name: name, Instances: []api.ServiceInstance{}}
		found, err := h.read(ctx)
		if err != nil {
			return false, err
		}
		for i := range found {
			if f := &found[i]; f.ServiceName() == name && in.wants(f) {
				out.Instances = append(out.Instances, offered(f))
			}
		}
		text, err := json.Marshal(out.Instances)
		sum := sha256.Sum256(text)
		out.Index = hex.EncodeToString(sum[:8])
		return out.Index != in.Index, err
	})
	return out, err
}

func (in *getInput) wants(f *contract.FoundInstance) bool {
	return (in.Health == "any" || f.Checked == api.InstancePassing) &&
		(in.Role == "" || in.Role == string(roleOf(f))) && (in.Tag == "" || slices.Contains(f.Service.Tags, in.Tag)) &&
		(in.Zone == "" || f.Zone == in.Zone)
}

func offered(f *contract.FoundInstance) api.ServiceInstance {
	address := f.Host
	if f.Service.Port != "" {
		address = net.JoinHostPort(f.Host, string(f.Service.Port))
	}
	return api.ServiceInstance{Job: f.Job, Instance: f.Name, Version: f.Version, TaskID: f.TaskID, Agent: f.Agent,
		Cluster: f.Cluster, Zone: f.Zone, Address: address, Tags: f.Service.Tags, Role: roleOf(f), Health: f.Checked,
		Since: f.Since}
}

func roleOf(f *contract.FoundInstance) api.InstanceRole {
	if f.Canary {
		return api.RoleCanary
	}
	return api.RoleStable
}

// settleRoles finds out which of the instances that began as canaries still are canaries: agents do not know.
func (h *Handlers) settleRoles(ctx context.Context, found []contract.FoundInstance) {
	var jobs []string
	for i := range found {
		if found[i].Canary && !slices.Contains(jobs, found[i].Job) {
			jobs = append(jobs, found[i].Job)
		}
	}
	still := make([]bool, len(jobs))
	parallel.Each(len(jobs), rest.FanOut, func(i int) {
		j, err := h.Store.Jobs().Get(ctx, jobs[i])
		still[i] = err != nil || j.Unpromoted()
	})
	for i := range found {
		found[i].Canary = found[i].Canary && still[slices.Index(jobs, found[i].Job)]
	}
}

// read asks the hubs of all clusters for the instances that offer a service. They are sorted.
func (h *Handlers) read(ctx context.Context) ([]contract.FoundInstance, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Now().Before(h.until) {
		return h.found, nil
	}
	views, _, err := h.Views(ctx, "")
	if err != nil {
		return nil, err
	}
	all := cluster.Cluster{Config: api.ClusterConfig{Name: "all"}}
	for i := range views {
		all.Members = append(all.Members, views[i].Members...)
	}
	found, err := h.Instances(ctx, &all, "")
	if err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(f contract.FoundInstance) bool { return f.Service == nil })
	slices.SortFunc(found, func(a, b contract.FoundInstance) int {
		return cmp.Or(strings.Compare(a.ServiceName(), b.ServiceName()), strings.Compare(a.Job, b.Job),
			strings.Compare(a.TaskID, b.TaskID), cmp.Compare(b.Attempt, a.Attempt),
			-strings.Compare(string(a.Checked), string(b.Checked))) // failing comes last
	})
	// An agent that has moved to another hub is known to both for a moment.
	found = slices.CompactFunc(found, func(a, b contract.FoundInstance) bool { return a.TaskID == b.TaskID })
	h.settleRoles(ctx, found)
	h.found, h.until = found, time.Now().Add(fresh)
	return found, nil
}

package gateway

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"mainstay.dev/mainstay/access"
	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/httpapi"
	"mainstay.dev/mainstay/protocol"
	"mainstay.dev/mainstay/store"
)

func (g *Gateway) registerClusters(routes huma.API) {
	httpapi.Register(routes, access.Administer, clusterOperation("create-cluster", http.MethodPost, "", "Create a cluster", http.StatusCreated),
		func(ctx context.Context, in *struct{ Body fleet.ClusterConfig }) (*clusterOutput, error) {
			config := in.Body.WithDefaults()
			if err := config.Validate(); err != nil {
				return nil, invalid("body", err)
			}
			err := g.createCluster(ctx, config)
			if store.KindOf(err) == store.Exists {
				return nil, httpapi.Problem(protocol.CodeClusterExists, "there is a cluster with this name: change it (mainstay cluster update, or PATCH), or choose another name")
			}
			if err != nil {
				return nil, g.answer(err, "create a cluster", protocol.CodeInternal)
			}
			now := time.Now()
			return tagged(clusterOf(&contract.ClusterView{Cluster: fleet.Cluster{Config: config}, CreatedAt: now})), nil
		})
	httpapi.Register(routes, access.View, clusterOperation("list-clusters", http.MethodGet, "", "List clusters", http.StatusOK), g.listClusters)
	httpapi.Register(routes, access.View, clusterOperation("get-cluster", http.MethodGet, "/{id}", "Get a cluster", http.StatusOK),
		func(ctx context.Context, in *clusterInput) (*clusterOutput, error) {
			view, err := g.view(ctx, in.ID)
			if err != nil {
				return nil, err
			}
			return tagged(fullCluster(&view)), nil
		})
	replace := clusterOperation("replace-cluster", http.MethodPut, "/{id}", "Replace a cluster's settings", http.StatusOK)
	replace.Description = "What is left out takes its default, but for replication_mode and shards, which stay."
	httpapi.Register(routes, access.Administer, replace,
		func(ctx context.Context, in *replaceClusterInput) (*clusterOutput, error) {
			expected, err := in.revisions()
			if err != nil {
				return nil, err
			}
			if err := g.noneMatches(ctx, in.ID, in.IfNoneMatch); err != nil {
				return nil, err
			}
			cluster, err := g.replaceCluster(ctx, in.ID, &in.Body, expected)
			if err != nil {
				return nil, err
			}
			return tagged(cluster), nil
		})
	g.registerClusterPatch(routes)
	httpapi.Register(routes, access.Administer, clusterOperation("delete-cluster", http.MethodDelete, "/{id}", "Delete a cluster", http.StatusNoContent),
		func(ctx context.Context, in *deleteClusterInput) (*struct{}, error) {
			expected, err := in.revisions()
			if err != nil {
				return nil, err
			}
			return nil, g.deleteCluster(ctx, in.ID, in.Force, expected)
		})
	release := clusterOperation("release-brake", http.MethodPost, "/{id}/brake/release", "Release the mass-loss brake", http.StatusOK)
	release.Description = "Says that the agents that vanished at once are really gone: their failovers begin. Where the brake holds nothing, nothing happens."
	httpapi.Register(routes, access.Operate, release, g.releaseBrake)
	httpapi.Register(routes, access.View, clusterOperation("list-members", http.MethodGet, "/{id}/members", "List a cluster's members", http.StatusOK), g.listMembers)
}

type clusterInput struct {
	ID string `path:"id" doc:"The cluster's name."`
}

type replaceClusterInput struct {
	ID string `path:"id" doc:"The cluster's name."`
	IfMatch
	IfNoneMatch string `header:"If-None-Match" maxLength:"512" doc:"Only * is taken: there must be no such cluster. It is then answered 412 precondition_failed if there is one; PUT makes none, so POST is what creates."`
	Body        ClusterSettings
}

type deleteClusterInput struct {
	ID string `path:"id" doc:"The cluster's name."`
	IfMatch
	Force bool `query:"force" doc:"Delete it although it has online agents."`
}

type releaseBrakeInput struct {
	ID   string             `path:"id" doc:"The cluster's name."`
	Body *api.ReasonRequest `doc:"May be left out."`
}

type releaseBrakeOutput struct {
	Body struct {
		Released bool `json:"released"`
	}
}

type membersInput struct {
	ID string `path:"id" doc:"The cluster's name."`
	PageInput
}

type clusterOutput struct {
	ETag string `header:"ETag" doc:"The revision of its settings, for If-Match."`
	Body api.Cluster
}

type listClustersOutput struct {
	Body struct {
		Clusters      []api.Cluster `json:"clusters"`
		NextPageToken string        `json:"next_page_token,omitempty"`
	}
}

type listMembersOutput struct {
	Body struct {
		Members       []api.Agent `json:"members"`
		NextPageToken string      `json:"next_page_token,omitempty"`
	}
}

func clusterOperation(id, method, path, summary string, status int) huma.Operation {
	return huma.Operation{
		OperationID: id, Method: method, Path: "/api/v1/agents/clusters" + path, Tags: []string{"Clusters"},
		Summary: summary, DefaultStatus: status,
	}
}

// listClusters shows a cluster whose workflow does not answer as unknown rather than leaving it out.
func (g *Gateway) listClusters(ctx context.Context, in *PageInput) (*listClustersOutput, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	after, err := openToken(byKey, in.PageToken)
	if err != nil {
		return nil, err
	}
	clusters, err := g.listed(ctx)
	if err != nil {
		return nil, err
	}
	clusters, next := page(clusters, string(after), in.PageSize, func(c *store.ListedCluster) string { return c.Name })
	views, errs := g.viewEach(ctx, clusters)
	out := &listClustersOutput{}
	out.Body.Clusters = make([]api.Cluster, 0, len(clusters))
	for i := range clusters {
		switch code, _ := problemCode(errs[i]); {
		case errs[i] == nil:
			out.Body.Clusters = append(out.Body.Clusters, clusterOf(&views[i]))
		case code == protocol.CodeUnknownCluster: // deleted since it was listed
		default:
			out.Body.Clusters = append(out.Body.Clusters, settingsOf(clusters[i].Config))
		}
	}
	out.Body.NextPageToken = next
	return out, nil
}

func (g *Gateway) listMembers(ctx context.Context, in *membersInput) (*listMembersOutput, error) {
	after, err := openToken(byKey, in.PageToken)
	if err != nil {
		return nil, err
	}
	view, err := g.view(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	live := g.live(ctx)
	members := make([]api.Agent, len(view.Members))
	for i := range view.Members {
		members[i] = agentOf(&view.Cluster, &view.Members[i], live)
	}
	out := &listMembersOutput{}
	out.Body.Members, out.Body.NextPageToken = page(members, string(after), in.PageSize, func(a *api.Agent) string { return a.ID })
	return out, nil
}

// releaseBrake gives up the lost agents whose failovers the brake holds back.
func (g *Gateway) releaseBrake(ctx context.Context, in *releaseBrakeInput) (*releaseBrakeOutput, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	request := contract.ReleaseBrakeRequest{Cluster: in.ID}
	if in.Body != nil {
		request.Reason = in.Body.Reason
	}
	if _, err := updateCluster(ctx, g, "release a brake", contract.ReleaseBrakeUpdate, in.ID, request); err != nil {
		return nil, err
	}
	out := &releaseBrakeOutput{}
	out.Body.Released = true
	return out, nil
}

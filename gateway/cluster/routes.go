// Package cluster answers what clients ask about clusters: their settings, targets and pauses.
package cluster

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"mainstay.dev/mainstay/access"
	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/httpapi"
	"mainstay.dev/mainstay/protocol"
	"mainstay.dev/mainstay/store"
)

// Handlers answer the requests.
type Handlers struct{ *rest.Core }

// ClusterPatch holds the settings of a cluster that change, as JSON has them. Its schema is that of ClusterChanges.
type ClusterPatch map[string]any

// Schema implements huma.SchemaProvider.
func (ClusterPatch) Schema(schemas huma.Registry) *huma.Schema {
	return schemas.Schema(reflect.TypeFor[ClusterChanges](), true, "ClusterChanges")
}

// ClusterChanges describes a patch: the settings that can change after creation.
type ClusterChanges fleet.ClusterConfig

// TransformSchema implements huma.SchemaTransformer.
func (ClusterChanges) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	s.Properties["tenant_weights"].Description = "Weights to set, by tenant, 0.1 to 100; 0 takes a tenant's weight away. Tenants that are not named keep theirs."
	return without(s, "name", "shards")
}

func (h *Handlers) registerClusterPatch(routes huma.API) {
	httpapi.Register(routes, access.Administer, rest.Op("Clusters", "update-cluster", "PATCH /clusters/{id}",
		"Change some settings of a cluster",
		"What is left out stays as it is, unlike with PUT."),
		func(ctx context.Context, in *struct {
			ID string `path:"id" doc:"The cluster's name."`
			IfMatch
			Body ClusterPatch
		}) (*clusterOutput, error) {
			expected, err := in.revisions()
			if err != nil {
				return nil, err
			}
			cluster, err := h.Configure(ctx, in.ID, expected, func(c fleet.ClusterConfig) (fleet.ClusterConfig, error) {
				return c.Changed(in.Body)
			})
			if err != nil {
				return nil, err
			}
			return tagged(cluster), nil
		})
}

// Register adds the operations.
func (h *Handlers) Register(routes huma.API) {
	httpapi.Register(routes, access.Administer, rest.WithStatus(http.StatusCreated,
		rest.Op("Clusters", "create-cluster", "POST /clusters", "Create a cluster", "")),
		func(ctx context.Context, in *struct{ Body fleet.ClusterConfig }) (*clusterOutput, error) {
			config := in.Body.WithDefaults()
			if err := config.Validate(); err != nil {
				return nil, rest.Invalid("body", err)
			}
			err := h.createCluster(ctx, config)
			if store.KindOf(err) == store.Exists {
				return nil, httpapi.Problem(protocol.CodeClusterExists,
					"there is a cluster with this name: change it (mainstay cluster update, or PATCH), or choose another name")
			}
			if err != nil {
				return nil, h.Answer(err, "create a cluster", protocol.CodeInternal)
			}
			now := time.Now()
			return tagged(clusterOf(&contract.ClusterView{Cluster: fleet.Cluster{Config: config}, CreatedAt: now})), nil
		})
	httpapi.Register(routes, access.View, httpapi.Wide(rest.Op("Clusters", "list-clusters", "GET /clusters",
		"List clusters", "")), h.listClusters)
	httpapi.Register(routes, access.View, rest.Op("Clusters", "get-cluster", "GET /clusters/{id}", "Get a cluster", ""),
		func(ctx context.Context, in *rest.ClusterInput) (*clusterOutput, error) {
			view, err := h.View(ctx, in.ID)
			if err != nil {
				return nil, err
			}
			return tagged(Full(&view)), nil
		})
	httpapi.Register(routes, access.Administer, rest.Op("Clusters", "replace-cluster", "PUT /clusters/{id}",
		"Replace a cluster's settings",
		"What is left out takes its default, but for replication_mode and shards, which stay."),
		func(ctx context.Context, in *replaceClusterInput) (*clusterOutput, error) {
			expected, err := in.revisions()
			if err != nil {
				return nil, err
			}
			if err := h.noneMatches(ctx, in.ID, in.IfNoneMatch); err != nil {
				return nil, err
			}
			cluster, err := h.replaceCluster(ctx, in.ID, &in.Body, expected)
			if err != nil {
				return nil, err
			}
			return tagged(cluster), nil
		})
	h.registerClusterPatch(routes)
	h.registerPauses(routes)
	h.registerBalance(routes)
	httpapi.Register(routes, access.Administer, rest.WithStatus(http.StatusNoContent,
		rest.Op("Clusters", "delete-cluster", "DELETE /clusters/{id}", "Delete a cluster", "")),
		func(ctx context.Context, in *deleteClusterInput) (*struct{}, error) {
			expected, err := in.revisions()
			if err != nil {
				return nil, err
			}
			return nil, h.deleteCluster(ctx, in.ID, in.Force, expected)
		})
	httpapi.Register(routes, access.Operate, rest.Op("Clusters", "release-brake", "POST /clusters/{id}/brake/release",
		"Release the mass-loss brake",
		"Says that the agents that vanished at once are really gone: their failovers begin. Where the brake holds nothing, nothing happens."), h.releaseBrake)
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
		Released bool `json:"released" doc:"false: the brake held nothing back."`
	}
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

// listClusters shows a cluster whose workflow does not answer as unknown rather than leaving it out.
func (h *Handlers) listClusters(ctx context.Context, in *rest.PageInput) (*listClustersOutput, error) {
	ctx, cancel := context.WithTimeout(ctx, rest.CallTimeout)
	defer cancel()
	clusters, err := h.ListClusters(ctx)
	if err != nil {
		return nil, err
	}
	clusters, next, err := rest.Page(clusters, in.PageToken, in.PageSize,
		func(c *store.ListedCluster) string { return c.Name })
	if err != nil {
		return nil, err
	}
	views, errs := h.ViewEach(ctx, clusters)
	out := &listClustersOutput{}
	out.Body.Clusters = make([]api.Cluster, 0, len(clusters))
	for i := range clusters {
		switch code, _ := rest.Code(errs[i]); {
		case errs[i] == nil:
			out.Body.Clusters = append(out.Body.Clusters, clusterOf(&views[i]))
		case code == protocol.CodeUnknownCluster: // deleted since it was listed
		default:
			out.Body.Clusters = append(out.Body.Clusters, OfSettings(clusters[i].Config))
		}
	}
	out.Body.NextPageToken = next
	return out, nil
}

// releaseBrake gives up the lost agents whose failovers the brake holds back.
func (h *Handlers) releaseBrake(ctx context.Context, in *releaseBrakeInput) (*releaseBrakeOutput, error) {
	ctx, cancel := context.WithTimeout(ctx, rest.CallTimeout)
	defer cancel()
	view, err := h.View(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	request := contract.ReleaseBrakeRequest{Cluster: in.ID, Reason: in.Body.Text()}
	if _, err := rest.UpdateCluster(ctx, h.Core, "release a brake", contract.ReleaseBrakeUpdate, in.ID,
		request); err != nil {
		return nil, err
	}
	out := &releaseBrakeOutput{}
	out.Body.Released = len(view.BrakeHolds) > 0
	return out, nil
}

// IfMatch is the precondition of a change. It is exported because huma reads no unexported embedded field.
type IfMatch struct {
	IfMatch string `header:"If-Match" maxLength:"512" doc:"The ETag that the change was made for. When the settings were changed since, the answer is 412 precondition_failed, and nothing happens."`
}

// etag is a revision as a header has it.
func etag(revision string) string { return `"` + revision + `"` }

// revisions are those that the precondition names; none means any. A weak tag never matches, as HTTP has it, so it is
// refused with a word rather than with an answer that nobody understands.
func (m IfMatch) revisions() ([]string, error) {
	text := strings.TrimSpace(m.IfMatch)
	if text == "" || text == "*" {
		return nil, nil
	}
	var revisions []string
	for part := range strings.SplitSeq(text, ",") {
		tag := strings.TrimSpace(part)
		if strings.HasPrefix(tag, "W/") {
			return nil, rest.Invalid("header.If-Match",
				errors.New("is a weak tag, which never matches: send the ETag as it was answered"))
		}
		if len(tag) < 2 || tag[0] != '"' || tag[len(tag)-1] != '"' {
			return nil, rest.Invalid("header.If-Match",
				errors.New(`must be an ETag in double quotes, as it was answered, or *`))
		}
		// it may have come compressed
		revisions = append(revisions, strings.TrimSuffix(tag[1:len(tag)-1], httpapi.CompressedTag))
	}
	return revisions, nil
}

// noneMatches is about PUT with If-None-Match, of which only * has a meaning here: that there is no such cluster.
func (h *Handlers) noneMatches(ctx context.Context, name, header string) error {
	switch strings.TrimSpace(header) {
	case "":
		return nil
	case "*":
	default:
		return rest.Invalid("header.If-None-Match",
			errors.New("must be *, or be left out: the revision that a change was made for goes into If-Match"))
	}
	ctx, cancel := context.WithTimeout(ctx, rest.CallTimeout)
	defer cancel()
	if _, err := h.ClusterConfig(ctx, name); err != nil {
		return err
	}
	return httpapi.Problem(protocol.CodePrecondition,
		"there is a cluster with this name, and If-None-Match: * says that there must be none: leave it out to replace the cluster's settings")
}

// tagged is a cluster with its ETag.
func tagged(c api.Cluster) *clusterOutput { return &clusterOutput{ETag: etag(c.Revision), Body: c} }

type pauseInput struct {
	ID   string            `path:"id" doc:"The cluster's name."`
	Body *api.PauseRequest `doc:"May be left out."`
}

func (h *Handlers) registerPauses(routes huma.API) {
	pause := rest.Op("Clusters", "pause-cluster", "POST /clusters/{id}/pause",
		"Pause a cluster or one of its lanes",
		"Nothing more is taken from its lanes; what runs goes on, and tasks can be submitted. Answers when the hubs have heard, "+
			"at most after 2 s. What waits in a paused lane still expires. Pausing again only changes the reason.")
	httpapi.Register(routes, access.Operate, pause, func(ctx context.Context, in *pauseInput) (*clusterOutput, error) {
		return h.pauseOrResume(ctx, in, contract.PauseUpdate)
	})
	httpapi.Register(routes, access.Operate, rest.Op("Clusters", "resume-cluster", "POST /clusters/{id}/resume",
		"Resume a cluster or one of its lanes",
		"Takes back what pause did: lanes that were paused by themselves stay so until they are named. Where nothing is paused, nothing happens."),
		func(ctx context.Context, in *pauseInput) (*clusterOutput, error) {
			return h.pauseOrResume(ctx, in, contract.ResumeUpdate)
		})
}

func (h *Handlers) pauseOrResume(
	ctx context.Context, in *pauseInput, u contract.Update[contract.PauseRequest, contract.Done],
) (*clusterOutput, error) {
	var body api.PauseRequest
	if in.Body != nil {
		body = *in.Body
	}
	if body.Lane != "" {
		lane, err := fleet.ParseLane(body.Lane)
		if err != nil {
			return nil, rest.Invalid("body.lane", err)
		}
		body.Lane = lane
	}
	ctx, cancel := context.WithTimeout(ctx, rest.CallTimeout)
	defer cancel()
	request := contract.PauseRequest{Lane: body.Lane, Reason: body.Reason}
	view, err := rest.ChangeCluster(ctx, h.Core, u.Name+" a cluster", u, in.ID, request)
	if err != nil {
		return nil, err
	}
	return tagged(Full(&view)), nil
}

// pausesOf are a cluster's own pause, if any, and those of its lanes.
func pausesOf(c *fleet.Cluster) (own *api.Pause, lanes []api.PausedLane) {
	for i := range c.Pauses {
		p := api.Pause{Since: c.Pauses[i].Since.UTC(), Reason: c.Pauses[i].Reason}
		if c.Pauses[i].Lane == "" {
			own = &p
		} else {
			lanes = append(lanes, api.PausedLane{Lane: c.Pauses[i].Lane, Pause: p})
		}
	}
	return own, lanes
}

// Package cluster answers what clients ask about clusters: their settings, targets and pauses.
package cluster

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
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
type ClusterChanges api.ClusterConfig

// TransformSchema implements huma.SchemaTransformer.
func (ClusterChanges) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	s.Properties["tenant_weights"].Description = "Weights to set, by tenant, 0.1 to 100; 0 takes a tenant's weight " +
		"away. Tenants that are not named keep theirs."
	return without(s, "name", "shards")
}

// Register adds the operations.
func (h *Handlers) Register(routes rest.API) {
	r := rest.On(routes, "Clusters")
	rest.Respond(r, "create-cluster", "POST /clusters", "Create a cluster", "", h.create,
		rest.As(access.Administer), rest.Status(http.StatusCreated))
	rest.List(r, "clusters", "list-clusters", "GET /clusters", "List clusters", "", h.list, rest.Wide)
	rest.Respond(r, "get-cluster", "GET /clusters/{id}", "Get a cluster", "",
		func(ctx context.Context, in *rest.ByID) (*clusterOutput, error) {
			view, err := h.View(ctx, in.ID)
			return tagged(Full(&view), err)
		})
	rest.Respond(r, "replace-cluster", "PUT /clusters/{id}", "Replace a cluster's settings",
		"What is left out takes its default, but for replication_mode and shards, which stay.", h.replace,
		rest.As(access.Administer))
	rest.Respond(r, "update-cluster", "PATCH /clusters/{id}", "Change some settings of a cluster",
		"What is left out stays as it is, unlike with PUT.", h.update, rest.As(access.Administer))
	rest.Serve(r, "delete-cluster", "DELETE /clusters/{id}", "Delete a cluster", "", h.delete,
		rest.As(access.Administer))
	rest.Respond(r, "pause-cluster", "POST /clusters/{id}/pause", "Pause a cluster or one of its lanes",
		"Nothing more is taken from its lanes; what runs goes on, and tasks can be submitted. Answers when the hubs "+
			"have heard, "+
			"at most after 2 s. What waits in a paused lane still expires. Pausing again only changes the reason.",
		h.pauses(contract.PauseUpdate))
	rest.Respond(r, "resume-cluster", "POST /clusters/{id}/resume", "Resume a cluster or one of its lanes",
		"Takes back what pause did: lanes that were paused by themselves stay so until they are named. Where "+
			"nothing is paused, nothing happens.",
		h.pauses(contract.ResumeUpdate))
	rest.Serve(r, "release-brake", "POST /clusters/{id}/brake/release", "Release the mass-loss brake",
		"Says that the agents that vanished at once are really gone: their failovers begin. Where the brake holds "+
			"nothing, nothing happens.",
		h.releaseBrake)
	h.registerBalance(r)
}

type replaceInput struct {
	rest.ByID
	IfMatch
	IfNoneMatch string `header:"If-None-Match" maxLength:"512" doc:"Only * is taken: there must be no such cluster. It is then answered 412 precondition_failed if there is one; PUT makes none, so POST is what creates."`
	Body        ClusterSettings
}

type updateInput struct {
	rest.ByID
	IfMatch
	Body ClusterPatch
}

type deleteInput struct {
	rest.ByID
	IfMatch
	Force bool `query:"force" doc:"Delete it although it has online agents."`
}

type clusterOutput struct {
	ETag string `header:"ETag" doc:"The revision of its settings, for If-Match."`
	Body api.Cluster
}

// tagged is a cluster with its ETag.
func tagged(c api.Cluster, err error) (*clusterOutput, error) {
	if err != nil {
		return nil, err
	}
	return &clusterOutput{ETag: etag(c.Revision), Body: c}, nil
}

func (h *Handlers) create(ctx context.Context, in *rest.Body[api.ClusterConfig]) (*clusterOutput, error) {
	config := in.Body.WithDefaults()
	if err := config.Validate(); err != nil {
		return nil, rest.Invalid("body", err)
	}
	err := h.createCluster(ctx, config)
	if store.KindOf(err) == store.Exists {
		return nil, httpapi.Problem(protocol.CodeClusterExists,
			"there is a cluster with this name: change it (mainstay cluster update, or PATCH), or choose another name")
	}
	made := contract.ClusterView{Cluster: cluster.Cluster{Config: config}, CreatedAt: time.Now()}
	return tagged(clusterOf(&made), h.Answer(err, "create a cluster", protocol.CodeInternal))
}

// list shows a cluster whose workflow does not answer as unknown rather than leaving it out.
func (h *Handlers) list(ctx context.Context, in *rest.PageInput) (page rest.Page[api.Cluster], err error) {
	ctx, cancel := context.WithTimeout(ctx, rest.CallTimeout)
	defer cancel()
	clusters, err := h.ListClusters(ctx)
	if err != nil {
		return page, err
	}
	listed, err := rest.PageAtHand(clusters, *in, func(c *store.ListedCluster) string { return c.Name })
	if err != nil {
		return page, err
	}
	views, errs := h.ViewEach(ctx, listed.Items)
	for i := range listed.Items {
		switch code, _ := rest.Code(errs[i]); {
		case errs[i] == nil:
			page.Items = append(page.Items, clusterOf(&views[i]))
		case code == protocol.CodeUnknownCluster: // deleted since it was listed
		default:
			page.Items = append(page.Items, OfSettings(listed.Items[i].Config))
		}
	}
	page.Next = listed.Next
	return page, nil
}

// replace changes a cluster's settings. Settings that are fixed at creation keep their value when left out.
func (h *Handlers) replace(ctx context.Context, in *replaceInput) (*clusterOutput, error) {
	expected, err := in.revisions()
	if err != nil {
		return nil, err
	}
	if err := h.noneMatches(ctx, in.ID, in.IfNoneMatch); err != nil {
		return nil, err
	}
	return tagged(h.Configure(ctx, in.ID, expected, func(current api.ClusterConfig) (api.ClusterConfig, error) {
		config := api.ClusterConfig(in.Body)
		config.Name = in.ID
		config.ReplicationMode = cmp.Or(config.ReplicationMode, current.ReplicationMode)
		config.Shards = cmp.Or(config.Shards, current.Shards)
		return config, nil
	}))
}

func (h *Handlers) update(ctx context.Context, in *updateInput) (*clusterOutput, error) {
	expected, err := in.revisions()
	if err != nil {
		return nil, err
	}
	return tagged(h.Configure(ctx, in.ID, expected, func(c api.ClusterConfig) (api.ClusterConfig, error) {
		return c.Changed(in.Body)
	}))
}

// releaseBrake gives up the lost agents whose failovers the brake holds back.
func (h *Handlers) releaseBrake(
	ctx context.Context, in *rest.To[*api.ReasonRequest],
) (release api.BrakeRelease, err error) {
	view, err := h.View(ctx, in.ID)
	if err != nil {
		return release, err
	}
	request := contract.ReleaseBrakeRequest{Cluster: in.ID, Reason: in.Body.Text()}
	_, err = rest.UpdateCluster(ctx, h.Core, "release a brake", contract.ReleaseBrakeUpdate, in.ID, request)
	release.Released = len(view.BrakeHolds) > 0
	return release, err
}

// IfMatch is the precondition of a change. It is exported because huma reads no unexported embedded field.
type IfMatch struct {
	IfMatch string `header:"If-Match" maxLength:"512" doc:"The ETag that the change was made for. When the settings were changed since, the answer is 412 precondition_failed, and nothing happens."`
}

// etag is a revision as a header has it.
func etag(revision string) string { return `"` + revision + `"` }

// revisions are the ones that the precondition names; none means any. By HTTP a weak tag never matches, so it is
// refused with an explanation instead of a bare 412.
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

// noneMatches handles PUT with If-None-Match. Only * has a meaning here: the cluster must not exist yet.
func (h *Handlers) noneMatches(ctx context.Context, name, header string) error {
	switch strings.TrimSpace(header) {
	case "":
		return nil
	case "*":
	default:
		return rest.Invalid("header.If-None-Match",
			errors.New("must be *, or be left out: the revision that a change was made for goes into If-Match"))
	}
	if _, err := h.ClusterConfig(ctx, name); err != nil {
		return err
	}
	return httpapi.Problem(protocol.CodePrecondition,
		"there is a cluster with this name, and If-None-Match: * says that there must be none: leave it out to "+
			"replace the cluster's settings")
}

// pauses makes the handler that pauses or resumes.
func (h *Handlers) pauses(
	u contract.Update[contract.PauseRequest, contract.Done],
) func(context.Context, *rest.To[*api.PauseRequest]) (*clusterOutput, error) {
	return func(ctx context.Context, in *rest.To[*api.PauseRequest]) (*clusterOutput, error) {
		body := rest.Given(in.Body)
		if body.Lane != "" {
			lane, err := task.ParseLane(body.Lane)
			if err != nil {
				return nil, rest.Invalid("body.lane", err)
			}
			body.Lane = lane
		}
		request := contract.PauseRequest{Lane: body.Lane, Reason: body.Reason}
		view, err := rest.ChangeCluster(ctx, h.Core, u.Name+" a cluster", u, in.ID, request)
		return tagged(Full(&view), err)
	}
}

// pausesOf are a cluster's own pause, if any, and those of its lanes.
func pausesOf(c *cluster.Cluster) (own *api.Pause, lanes []api.PausedLane) {
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

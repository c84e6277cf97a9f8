package cluster

import (
	"context"

	"github.com/danielgtaylor/huma/v2"

	"mainstay.dev/mainstay/access"
	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/httpapi"
)

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
	ctx context.Context, in *pauseInput, u contract.Update[contract.PauseRequest, contract.ClusterView],
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
	view, err := rest.UpdateCluster(ctx, h.Core, u.Name+" a cluster", u, in.ID, request)
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

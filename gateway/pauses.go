package gateway

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"mainstay.dev/mainstay/access"
	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/httpapi"
	"mainstay.dev/mainstay/protocol"
)

// PauseRequest holds a cluster or one of its lanes back, or lets it go on.
type PauseRequest struct {
	Lane   string `json:"lane,omitempty" maxLength:"2100" doc:"default, cap/<capability>+<capability>, shard/<number> or agent/<id>, as in the queue view. Left out: the whole cluster, with the work pinned to its agents."`
	Reason string `json:"reason,omitempty" maxLength:"512" doc:"Shown with the pause, and kept in the history."`
}

// Pause is what holds a cluster or a lane back.
type Pause struct {
	Since  time.Time `json:"since"`
	Reason string    `json:"reason,omitempty"`
}

// PausedLane is a lane that was paused by itself.
type PausedLane struct {
	Lane string `json:"lane"`
	Pause
}

type pauseInput struct {
	ID   string        `path:"id" doc:"The cluster's name."`
	Body *PauseRequest `doc:"May be left out."`
}

func (g *Gateway) registerPauses(api huma.API) {
	pause := clusterOperation("pause-cluster", http.MethodPost, "/{id}/pause", "Pause a cluster or one of its lanes", http.StatusOK)
	pause.Description = "Nothing more is taken from its lanes; what runs goes on, and tasks can be submitted. Answers when the hubs have heard, " +
		"at most after 2 s. What waits in a paused lane still expires. Pausing again only changes the reason."
	httpapi.Register(api, access.Operate, pause, func(ctx context.Context, in *pauseInput) (*clusterOutput, error) {
		return g.pauseOrResume(ctx, in, contract.PauseUpdate)
	})
	resume := clusterOperation("resume-cluster", http.MethodPost, "/{id}/resume", "Resume a cluster or one of its lanes", http.StatusOK)
	resume.Description = "Takes back what pause did: lanes that were paused by themselves stay so until they are named. Where nothing is paused, nothing happens."
	httpapi.Register(api, access.Operate, resume, func(ctx context.Context, in *pauseInput) (*clusterOutput, error) {
		return g.pauseOrResume(ctx, in, contract.ResumeUpdate)
	})
}

func (g *Gateway) pauseOrResume(
	ctx context.Context, in *pauseInput, u contract.Update[contract.PauseRequest, contract.ClusterView],
) (*clusterOutput, error) {
	var body PauseRequest
	if in.Body != nil {
		body = *in.Body
	}
	if body.Lane != "" {
		lane, err := fleet.ParseLane(body.Lane)
		if err != nil {
			return nil, invalid("body.lane", err)
		}
		body.Lane = lane
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := g.describeCluster(ctx, in.ID); err != nil {
		return nil, err
	}
	request := contract.PauseRequest{Lane: body.Lane, Reason: body.Reason}
	view, err := update(ctx, g, u, contract.ClusterWorkflowID(in.ID), request)
	if err != nil {
		return nil, g.answer(err, u.Name+" a cluster", protocol.CodeUnknownCluster)
	}
	return tagged(fullCluster(&view)), nil
}

// pausesOf are a cluster's own pause, if any, and those of its lanes.
func pausesOf(c *fleet.Cluster) (own *Pause, lanes []PausedLane) {
	for i := range c.Pauses {
		p := Pause{Since: c.Pauses[i].Since.UTC(), Reason: c.Pauses[i].Reason}
		if c.Pauses[i].Lane == "" {
			own = &p
		} else {
			lanes = append(lanes, PausedLane{c.Pauses[i].Lane, p})
		}
	}
	return own, lanes
}

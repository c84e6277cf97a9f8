package gateway

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"mainstay.dev/mainstay/access"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/httpapi"
)

// ScaleRequest says how many agents a cluster is to have.
type ScaleRequest struct {
	Desired *int `json:"desired,omitempty" minimum:"0" maximum:"1000" doc:"How many agents are kept from now on. With scaling off, it is turned to manual; in auto, the rules go on from there."`
	Min     *int `json:"min,omitempty" minimum:"0" maximum:"1000" doc:"Never fewer: min_agents."`
	Max     *int `json:"max,omitempty" minimum:"1" maximum:"1000" doc:"Never more: max_agents."`
}

// ScalingStatus is how a cluster's number of agents is kept.
type ScalingStatus struct {
	Cluster   string                `json:"cluster"`
	Mode      fleet.ScalingMode     `json:"mode" enum:"off,manual,auto"`
	Min       int                   `json:"min_agents"`
	Desired   int                   `json:"desired_agents" doc:"As it was set."`
	Max       int                   `json:"max_agents"`
	Target    int                   `json:"target_agents" doc:"How many are kept now: what was set, or what rules have made of it."`
	Current   int                   `json:"current_agents" doc:"Online agents, and those that are being started."`
	Spawned   int                   `json:"spawned_agents" doc:"Online agents that a spawner started; only these are ever stopped."`
	Queue     *int64                `json:"queue,omitempty" doc:"About how many tasks wait that such agents could do. Absent when not known."`
	Decision  *ScalingDecision      `json:"decision,omitempty" doc:"What would be decided now. Absent when queue and load are not known."`
	Blocked   *Evaluation           `json:"blocked,omitempty" doc:"Agents are wanted that could not be started."`
	Stuck     *Evaluation           `json:"stuck,omitempty" doc:"Agents are to be stopped that could not be."`
	Last      *ScalingDecision      `json:"last_decision,omitempty" doc:"The newest one to do something."`
	LastUp    *time.Time            `json:"last_scale_up,omitempty"`
	LastDown  *time.Time            `json:"last_scale_down,omitempty"`
	NextCheck *time.Time            `json:"next_evaluation,omitempty" doc:"When all is looked at again, at the latest. Absent while the schedule \"scaling\" is paused in Temporal, or scaling is off."`
	Paused    bool                  `json:"paused,omitempty" doc:"The schedule \"scaling\" is paused in Temporal: the rules do not act. Lost agents are replaced all the same."`
	Spawners  []SpawnerSeen         `json:"spawners" doc:"Spawners that would start agents for it and were there within the last minutes."`
	Actions   []fleet.ScalingRecord `json:"actions" doc:"The newest actions, newest first."`
	Settings  fleet.ScalingPolicy   `json:"settings"`
}

// ScalingDecision is fleet.ScalingDecision as clients see it.
type ScalingDecision struct {
	At      time.Time         `json:"at"`
	Change  fleet.ScaleChange `json:"change" enum:"none,up,down"`
	Count   int               `json:"count,omitempty"`
	Agents  []string          `json:"agents,omitempty" doc:"Those that are stopped."`
	Rule    fleet.ScalingRule `json:"rule,omitempty" enum:"minimum,desired,maximum,queue,cpu,idle,retire"`
	Reason  string            `json:"reason"`
	Blocked bool              `json:"blocked,omitempty" doc:"Agents are wanted that cannot be had now."`
	NextAt  *time.Time        `json:"next_at,omitempty" doc:"When what holds it back ends by itself."`
}

// Evaluation is fleet.Blocked as clients see it.
type Evaluation struct {
	Reason   string    `json:"reason"`
	Since    time.Time `json:"since"`
	Failures int       `json:"failures"`
	NextAt   time.Time `json:"next_at" doc:"When it is tried again, at the latest: at once when a spawner comes up."`
}

// SpawnerSeen is a spawner that polled recently.
type SpawnerSeen struct {
	Name     string    `json:"name"`
	LastSeen time.Time `json:"last_seen"`
}

type scalingOutput struct {
	Body ScalingStatus
}

type scaleInput struct {
	ID   string `path:"id" doc:"The cluster's name."`
	Body ScaleRequest
}

type scalingRecordInput struct {
	ID string `path:"id" maxLength:"256" doc:"The action's id: <cluster>:<number>."`
}

type scalingRecordOutput struct {
	Body fleet.ScalingRecord
}

type listScalingsInput struct {
	Cluster string `query:"cluster" maxLength:"63" pattern:"^[a-z0-9][a-z0-9._-]*$"`
	RecordPageInput
}

type listScalingsOutput struct {
	Body struct {
		Scalings      []fleet.ScalingRecord `json:"scalings"`
		NextPageToken string                `json:"next_page_token,omitempty"`
	}
}

func (g *Gateway) registerScaling(api huma.API) {
	get := clusterOperation("get-scaling", http.MethodGet, "/{id}/scaling", "Show how a cluster's number of agents is kept", http.StatusOK)
	get.Tags = []string{"Scaling"}
	httpapi.Register(api, access.View, get, func(ctx context.Context, in *clusterInput) (*scalingOutput, error) {
		status, err := g.scalingStatus(ctx, in.ID)
		if err != nil {
			return nil, err
		}
		return &scalingOutput{Body: status}, nil
	})
	scale := clusterOperation("scale-cluster", http.MethodPost, "/{id}/scaling", "Say how many agents a cluster is to have", http.StatusOK)
	scale.Tags = []string{"Scaling"}
	scale.Description = "Agents are started or stopped at once. Who is stopped is drained before: agents without work first, and only agents that a spawner started."
	httpapi.Register(api, access.Operate, scale, g.scaleCluster)
	httpapi.Register(api, access.View, huma.Operation{
		OperationID: "list-scalings", Method: http.MethodGet, Path: "/api/v1/agents/scalings", Tags: []string{"Scaling"},
		Summary: "List what scaling has done", Description: "Newest first. An action appears within about a second of its start.",
	}, g.listScalings)
	httpapi.Register(api, access.View, huma.Operation{
		OperationID: "get-scaling-action", Method: http.MethodGet, Path: "/api/v1/agents/scalings/{id}", Tags: []string{"Scaling"},
		Summary: "Get one action of scaling", Description: "Why it was begun, which agents it started or stopped, and how that went.",
	}, func(ctx context.Context, in *scalingRecordInput) (*scalingRecordOutput, error) {
		record, err := g.scalingRecord(ctx, in.ID)
		if err != nil {
			return nil, err
		}
		return &scalingRecordOutput{Body: record}, nil
	})
}

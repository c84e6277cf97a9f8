package gateway

import (
	"context"
	"maps"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"mainstay.dev/mainstay/access"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/httpapi"
)

// ClusterPatch changes some of a cluster's settings: what is left out stays as it is. A zero takes the default.
type ClusterPatch struct {
	TargetGroup         *string                  `json:"target_group,omitempty" maxLength:"255" doc:"The group of deployment targets it serves."`
	MinAgents           *int                     `json:"min_agents,omitempty" minimum:"0" maximum:"1000" doc:"With fewer online agents it is critical."`
	DesiredAgents       *int                     `json:"desired_agents,omitempty" minimum:"0" maximum:"1000" doc:"With fewer online agents it is degraded."`
	MaxAgents           *int                     `json:"max_agents,omitempty" minimum:"0" maximum:"1000" doc:"More agents are refused."`
	ReplicationMode     *fleet.ReplicationMode   `json:"replication_mode,omitempty" enum:"active_active,active_passive,sharded" doc:"Whether it is sharded is fixed at creation."`
	Selection           *fleet.SelectionStrategy `json:"selection_strategy,omitempty" enum:"standby,least_loaded,round_robin,affinity" doc:"How a failover's target is picked."`
	RoleLease           *fleet.Duration          `json:"role_lease,omitempty" doc:"How long a leader or the owner of a shard may go on without hearing from its hub."`
	ManualElection      *bool                    `json:"manual_election,omitempty" doc:"Whether a lost leader keeps its seat until it is back or a person acts."`
	ElectionInterval    *fleet.Duration          `json:"election_interval,omitempty" doc:"The longest between two looks at a leader or shard owner."`
	TaskDefaults        *TaskDefaultsPatch       `json:"task_defaults,omitempty" doc:"What its tasks have that leave it out."`
	TransferTimeout     *fleet.Duration          `json:"task_transfer_timeout,omitempty" doc:"How long a failover watches the tasks that it moves."`
	DeadLetterRetention *fleet.Duration          `json:"dead_letter_retention,omitempty" doc:"How long a dead letter of its tasks is kept for a retry. Holds for tasks submitted from then on."`
	Brake               *BrakePatch              `json:"brake,omitempty" doc:"When so many agents vanish at once that their failovers wait."`
	SelfHealing         *HealingPatch            `json:"self_healing,omitempty" doc:"What the healing cycle may do in the cluster."`
	TenantWeights       map[string]float64       `json:"tenant_weights,omitempty" doc:"Weights to set, by tenant, 0.1 to 100; 0 takes a tenant's weight away. Tenants that are not named keep theirs."`
	Scaling             *ScalingSettings         `json:"scaling,omitempty" doc:"When its agents are started and stopped: what is left out of it stays as it is."`
}

// BrakePatch changes some of the brake's settings.
type BrakePatch struct {
	Share   *float64        `json:"share,omitempty" minimum:"0" maximum:"1" doc:"Of the cluster's agents, more than this share must vanish. 1 turns the brake off."`
	MinLost *int            `json:"min_lost,omitempty" minimum:"0" maximum:"1000" doc:"And at least so many."`
	Window  *fleet.Duration `json:"window,omitempty" doc:"Within this time."`
}

// TaskDefaultsPatch changes some of what tasks have that leave it out.
type TaskDefaultsPatch struct {
	MaxAttempts  *int            `json:"max_attempts,omitempty" minimum:"0" maximum:"100"`
	MaxTransfers *int            `json:"max_transfers,omitempty" minimum:"0" maximum:"100"`
	ExpiresIn    *fleet.Duration `json:"expires_in,omitempty"`
}

// apply is the configuration with the patch.
func (p *ClusterPatch) apply(c fleet.ClusterConfig) fleet.ClusterConfig {
	set(&c.TargetGroup, p.TargetGroup)
	set(&c.MinAgents, p.MinAgents)
	set(&c.DesiredAgents, p.DesiredAgents)
	set(&c.MaxAgents, p.MaxAgents)
	set(&c.ReplicationMode, p.ReplicationMode)
	set(&c.Selection, p.Selection)
	set(&c.RoleLease, p.RoleLease)
	set(&c.TransferTimeout, p.TransferTimeout)
	set(&c.ManualElection, p.ManualElection)
	set(&c.ElectionInterval, p.ElectionInterval)
	if p.TaskDefaults != nil {
		set(&c.TaskDefaults.MaxAttempts, p.TaskDefaults.MaxAttempts)
		set(&c.TaskDefaults.MaxTransfers, p.TaskDefaults.MaxTransfers)
		set(&c.TaskDefaults.ExpiresIn, p.TaskDefaults.ExpiresIn)
	}
	set(&c.DeadLetterRetention, p.DeadLetterRetention)
	if p.Brake != nil {
		set(&c.Brake.Share, p.Brake.Share)
		set(&c.Brake.MinLost, p.Brake.MinLost)
		set(&c.Brake.Window, p.Brake.Window)
	}
	if p.SelfHealing != nil {
		p.SelfHealing.apply(&c.SelfHealing)
	}
	if len(p.TenantWeights) > 0 {
		weights := maps.Clone(c.TenantWeights)
		if weights == nil {
			weights = map[string]float64{}
		}
		for tenant, weight := range p.TenantWeights {
			if weight == 0 {
				delete(weights, tenant)
			} else {
				weights[tenant] = weight
			}
		}
		c.TenantWeights = weights
	}
	p.Scaling.apply(&c.Scaling)
	return c
}

func set[T any](field *T, value *T) {
	if value != nil {
		*field = *value
	}
}

func (g *Gateway) registerClusterPatch(api huma.API) {
	operation := clusterOperation("update-cluster", http.MethodPatch, "/{id}", "Change some settings of a cluster", http.StatusOK)
	operation.Description = "What is left out stays as it is, unlike with PUT."
	httpapi.Register(api, access.Administer, operation, func(ctx context.Context, in *struct {
		ID string `path:"id" doc:"The cluster's name."`
		IfMatch
		Body ClusterPatch
	}) (*clusterOutput, error) {
		expected, err := in.revisions()
		if err != nil {
			return nil, err
		}
		cluster, err := g.configure(ctx, in.ID, expected, in.Body.apply)
		if err != nil {
			return nil, err
		}
		return tagged(cluster), nil
	})
}

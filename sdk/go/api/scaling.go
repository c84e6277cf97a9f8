package api

import (
	"time"
)

// ScaleRequest says how many agents a cluster is to have.
type ScaleRequest struct {
	Desired *int `json:"desired,omitempty" minimum:"0" maximum:"5000" doc:"How many agents are kept from now on. With scaling off, it is turned to manual; in auto, the rules go on from there."`
	Min     *int `json:"min,omitempty" minimum:"0" maximum:"5000" doc:"Never fewer: min_agents."`
	Max     *int `json:"max,omitempty" minimum:"1" maximum:"5000" doc:"Never more: max_agents."`
}

// ScalingAccepted says which action starts or stops which agent.
type ScalingAccepted struct {
	ScalingID string `json:"scaling_id" doc:"GET /scalings/{id} shows how it goes."`
	AgentID   string `json:"agent_id"`
}

// ScalingStatus is how a cluster's number of agents is kept.
type ScalingStatus struct {
	Cluster   string           `json:"cluster"`
	Mode      ScalingMode      `json:"mode" enum:"off,manual,auto"`
	Min       int              `json:"min_agents"`
	Desired   int              `json:"desired_agents" doc:"As it was set."`
	Max       int              `json:"max_agents"`
	Target    int              `json:"target_agents" doc:"How many are kept now: what was set, or what rules have made of it."`
	Current   int              `json:"current_agents" doc:"Online agents, and those that are being started, without canaries that are not promoted."`
	Spawned   int              `json:"spawned_agents" doc:"Online agents that a spawner started; only these are ever stopped."`
	Queue     *int64           `json:"queue,omitempty" doc:"About how many tasks wait that such agents could do. Absent when not known."`
	Decision  *ScalingDecision `json:"decision,omitempty" doc:"What would be decided now. Absent when queue and load are not known."`
	Blocked   *Evaluation      `json:"blocked,omitempty" doc:"Agents are wanted that could not be started."`
	Stuck     *Evaluation      `json:"stuck,omitempty" doc:"Agents are to be stopped that could not be."`
	Rollout   *Rollout         `json:"rollout,omitempty" doc:"The newest replacement of agents because what they are started with has changed."`
	Last      *ScalingDecision `json:"last_decision,omitempty" doc:"The newest one to do something."`
	LastUp    *time.Time       `json:"last_scale_up,omitempty"`
	LastDown  *time.Time       `json:"last_scale_down,omitempty"`
	NextCheck *time.Time       `json:"next_evaluation,omitempty" doc:"When all is looked at again, at the latest. Absent while the schedule \"scaling\" is paused in Temporal, or scaling is off."`
	Paused    bool             `json:"paused,omitempty" doc:"The schedule \"scaling\" is paused in Temporal: the rules do not act. Lost agents are replaced all the same."`
	Spawners  []SpawnerSeen    `json:"spawners" doc:"Spawners that would start agents for it and were there within the last minutes."`
	Actions   []ScalingRecord  `json:"actions" doc:"The newest actions, newest first."`
	Settings  ScalingPolicy    `json:"settings"`
}

// ScalingDecision is cluster.ScalingDecision as clients see it.
type ScalingDecision struct {
	At      time.Time   `json:"at"`
	Change  ScaleChange `json:"change" enum:"none,up,down"`
	Count   int         `json:"count,omitempty"`
	Agents  []string    `json:"agents,omitempty" doc:"Those that are stopped."`
	Rule    ScalingRule `json:"rule,omitempty" enum:"minimum,desired,maximum,queue,cpu,idle,retire,rollout"`
	Reason  string      `json:"reason"`
	Blocked bool        `json:"blocked,omitempty" doc:"Agents are wanted that cannot be had now."`
	NextAt  *time.Time  `json:"next_at,omitempty" doc:"When what holds it back ends by itself."`
}

// Evaluation is api.ScalingBlocked as clients see it.
type Evaluation struct {
	Reason   string    `json:"reason"`
	Since    time.Time `json:"since"`
	Failures int       `json:"failures"`
	NextAt   time.Time `json:"next_at" doc:"When it is tried again, at the latest: at once when a spawner comes up."`
}

// SpawnerHealth says whether a spawner can do its work.
type SpawnerHealth string

// How a spawner may be.
const (
	SpawnerHealthy   SpawnerHealth = "healthy"
	SpawnerUnhealthy SpawnerHealth = "unhealthy" // its platform does not answer
	SpawnerUnknown   SpawnerHealth = "unknown"   // it does not answer itself
)

// Spawner is a spawner as it is now.
type Spawner struct {
	SpawnerSeen
	Platform    Platform      `json:"platform,omitempty" doc:"Where its agents run. Absent while it does not answer, as all that follows."`
	Health      SpawnerHealth `json:"health" enum:"healthy,unhealthy,unknown"`
	Problem     string        `json:"problem,omitempty" doc:"Why it is not healthy."`
	Agents      int           `json:"agents" doc:"How many of its agents run."`
	MaxAgents   int           `json:"max_agents,omitempty" doc:"How many may run at a time. Absent: nothing bounds them."`
	CPUs        int           `json:"cpus,omitempty" doc:"Cores of its platform in all, where they are known."`
	MemoryBytes int64         `json:"memory_bytes,omitempty" doc:"Memory of its platform in all, where it is known."`
	Ended       []SpawnEnd    `json:"ended" doc:"The newest ends of its agents that nobody asked for, newest first. They are forgotten when it restarts."`
}

// SpawnerSeen is a spawner that polled recently.
type SpawnerSeen struct {
	Name     string    `json:"name"`
	LastSeen time.Time `json:"last_seen"`
}

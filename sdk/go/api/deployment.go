package api

import (
	"cmp"
	"time"
)

// JobUpdate says how the instances of a new version take the place of those of the version before.
type JobUpdate struct {
	MaxParallel    int           `json:"max_parallel,omitempty" minimum:"1" maximum:"1000" doc:"How many instances are replaced at a time. Default 1."`
	Order          UpdateOrder   `json:"order,omitempty" enum:"start_first,stop_first" doc:"start_first (the default of a service): an old instance is stopped once the new one is healthy. stop_first (the default of a system job): before the new one is started, to make room."`
	Canary         int           `json:"canary,omitempty" minimum:"0" maximum:"1000" doc:"How many instances of the new version are started first; the others follow when it is promoted. Those of a service are beside the old ones. Default 0."`
	Promote        UpdatePromote `json:"promote,omitempty" enum:"manual,auto" doc:"Once the canaries are healthy, a person lets the others follow (manual, the default), or they follow at once (auto)."`
	HealthyAfter   Duration      `json:"healthy_after,omitempty" least:"1ms" most:"24h" doc:"How long a new instance must pass before it counts as healthy. Default 10s."`
	HealthyWithin  Duration      `json:"healthy_within,omitempty" least:"1s" most:"168h" doc:"The deployment fails when a new instance is not healthy by then. Default 5m."`
	ProgressWithin Duration      `json:"progress_within,omitempty" least:"1s" most:"720h" doc:"The deployment fails when no further instance was healthy for so long. Default 10m."`
	Revert         bool          `json:"revert,omitempty" doc:"After a deployment that failed, the last version that was healthy is put in force again."`
}

// UpdateOrder says whether an old instance is stopped before the new one is started.
type UpdateOrder string

// The orders.
const (
	StartFirst UpdateOrder = "start_first"
	StopFirst  UpdateOrder = "stop_first"
)

// UpdatePromote says who lets the other instances follow healthy canaries.
type UpdatePromote string

// Who promotes.
const (
	PromoteManual UpdatePromote = "manual"
	PromoteAuto   UpdatePromote = "auto"
)

// The defaults of an Update.
const (
	DefaultHealthyAfter   = 10 * time.Second
	DefaultHealthyWithin  = 5 * time.Minute
	DefaultProgressWithin = 10 * time.Minute
)

// Updating is the definition's update with its defaults; nil: a new version replaces all instances at a time.
func (d *JobDefinition) Updating() *JobUpdate {
	if d == nil || d.Update == nil {
		return nil
	}
	u := *d.Update
	u.MaxParallel, u.Promote = max(1, u.MaxParallel), cmp.Or(u.Promote, PromoteManual)
	if u.Order == "" {
		u.Order = StartFirst
		if d.Type == JobSystem {
			u.Order = StopFirst
		}
	}
	u.HealthyAfter = cmp.Or(u.HealthyAfter, Duration(DefaultHealthyAfter))
	u.HealthyWithin = cmp.Or(u.HealthyWithin, Duration(DefaultHealthyWithin))
	u.ProgressWithin = cmp.Or(u.ProgressWithin, Duration(DefaultProgressWithin))
	return &u
}

// DeploymentStatus is where a deployment stands.
type DeploymentStatus string

// The statuses of a deployment. The last three are final.
const (
	DeploymentRunning    DeploymentStatus = "running"
	DeploymentWaiting    DeploymentStatus = "waiting" // the canaries are healthy, and a person is to promote them
	DeploymentSuccessful DeploymentStatus = "successful"
	DeploymentFailed     DeploymentStatus = "failed"
	DeploymentCancelled  DeploymentStatus = "cancelled" // another version took its place, or the job was stopped
)

// Deployment is how a version takes the place of the one before.
type Deployment struct {
	Version    int              `json:"version" doc:"The version that is deployed."`
	Before     int              `json:"before,omitempty" doc:"The last version with which all instances were healthy. 0: there is none."`
	Status     DeploymentStatus `json:"status" enum:"running,waiting,successful,failed,cancelled" doc:"waiting: the canaries are healthy, and a person is to promote them."`
	Reason     string           `json:"reason,omitempty"`
	TaskID     string           `json:"task_id,omitempty" doc:"The task of the instance for which it failed: its log and attempts say more."`
	By         string           `json:"by,omitempty"`
	Revert     bool             `json:"revert,omitempty" doc:"It puts an earlier version in force again: without canaries, and it is not reverted itself."`
	RevertedTo int              `json:"reverted_to,omitempty" doc:"It failed, and this earlier version was put in force again."`
	Promoted   *Decision        `json:"promoted,omitempty"`
	Counts     []VersionCount   `json:"counts" doc:"The instances by version, at its end if it has ended."`
	StartedAt  time.Time        `json:"started_at"`
	// ProgressAt is when one instance more was healthy than ever before; Best is how many were.
	ProgressAt time.Time `json:"progress_at" doc:"When it got on last."`
	Best       int       `json:"best,omitempty" doc:"How many instances of its version were healthy at once."`
	EndedAt    time.Time `json:"ended_at,omitzero"`
}

// InstanceRole is what an instance of a service is in a deployment.
type InstanceRole string

// The roles.
const (
	RoleStable InstanceRole = "stable"
	RoleCanary InstanceRole = "canary" // of a version that is not promoted yet
)

// VersionCount counts the instances of one version that are not being stopped.
type VersionCount struct {
	Version   int `json:"version"`
	Instances int `json:"instances"`
	Healthy   int `json:"healthy"`
}

// Active reports whether the deployment has not ended.
func (r *Deployment) Active() bool {
	return r.Status == DeploymentRunning || r.Status == DeploymentWaiting
}

// VersionSpan is a range of versions that differ in nothing that instances notice. The zero value is empty.
type VersionSpan struct {
	First int `json:"first"`
	Last  int `json:"last"`
}

// Has reports whether a version is in the range.
func (s VersionSpan) Has(version int) bool {
	return s.First <= version && version <= s.Last && version > 0
}

package contract

import (
	"cmp"
	"strings"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/temporal"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
)

// firingTime is how Temporal appends the nominal time.
const firingTime = "-" + time.RFC3339

// FiringOfWorkflowID reads schedule and nominal time from the id of a Firing workflow; ok is false for other ids.
func FiringOfWorkflowID(id string) (schedule string, at time.Time, ok bool) {
	rest, ok := strings.CutPrefix(id, FiringsWorkflowID(""))
	cut := len(rest) - len("-2006-01-02T15:04:05Z")
	if !ok || cut < 1 {
		return "", time.Time{}, false
	}
	at, err := time.Parse(firingTime, rest[cut:])
	if err != nil || !api.IsScheduleName(rest[:cut]) {
		return "", time.Time{}, false
	}
	return rest[:cut], at.UTC(), true
}

// Search attributes that Temporal gives to the workflows that a schedule starts.
const (
	attrScheduledBy = "TemporalScheduledById"
	attrScheduledAt = "TemporalScheduledStartTime" // nominal
)

// FiringOf reads schedule and nominal time from the search attributes of a Firing workflow. Its id says the same, but
// is not in its history, and so not there when that is replayed.
func FiringOf(attributes *commonpb.SearchAttributes) (schedule string, at time.Time, ok bool) {
	var id string
	fields := attributes.GetIndexedFields()
	if !Decode(fields[attrScheduledBy], &id) || !Decode(fields[attrScheduledAt], &at) {
		return "", time.Time{}, false
	}
	schedule, ok = ScheduleOfID(id)
	return schedule, at.UTC(), ok && api.IsScheduleName(schedule)
}

// FiringAttributes are what Temporal gives to a firing, for tests that start one by themselves.
func FiringAttributes(schedule string, at time.Time) temporal.SearchAttributes {
	return temporal.NewSearchAttributes(
		temporal.NewSearchAttributeKeyKeyword(attrScheduledBy).ValueSet(ScheduleID(schedule)),
		temporal.NewSearchAttributeKeyTime(attrScheduledAt).ValueSet(at))
}

// FiringWorkflowID is the id of the Firing workflow of one firing.
func FiringWorkflowID(schedule string, at time.Time) string {
	return FiringsWorkflowID(schedule) + at.UTC().Format(firingTime)
}

// FiringTaskID is the id of the one task of a firing: "nightly@20261121t030000z".
func FiringTaskID(schedule string, at time.Time) string {
	return schedule + strings.ToLower(at.UTC().Format("@20060102T150405Z"))
}

// Messages of the Firing workflow: a firing of a schedule.
var (
	// SettledSignal informs the firing that made a task that the task waits for a person. The schedule goes on: a dead
	// letter does not hold it up for a week.
	SettledSignal = Signal[TaskSettled]{"settled"}
	// PlaceTaskActivity finds the lane of a task that a schedule makes.
	PlaceTaskActivity = Activity[PlaceTaskInput, TaskPlace]{"PlaceTask"}
	// IsMadeByActivity reports whether a task is one that a schedule made, of the same kind and payload.
	IsMadeByActivity = Activity[IsMadeByInput, bool]{"IsMadeBy"}
)

// IsMadeByInput is the input of IsMadeByActivity.
type IsMadeByInput struct {
	TaskID   string `json:"task_id"`
	Schedule string `json:"schedule"`
	// Spec is what the task would be.
	Spec api.TaskSpec `json:"spec"`
}

// FiringInput starts a Firing workflow: one firing of a schedule.
type FiringInput struct {
	Spec api.TaskSpec `json:"spec"`
}

// FiringResult is the outcome of a firing. A firing whose task did not complete ends as failed or cancelled.
type FiringResult struct {
	TaskID string         `json:"task_id"`
	Status api.TaskStatus `json:"status,omitempty"`
	// Repeated says that the task was there before: the same time fired twice.
	Repeated bool `json:"repeated,omitempty"`
}

// TaskSettled has the status in which a task has settled.
type TaskSettled struct {
	Status api.TaskStatus `json:"status"`
	Why    string         `json:"why,omitempty"`
}

// UnknownCluster is the application error type of a firing whose cluster is not there.
const UnknownCluster = "UnknownCluster"

// IDTaken is the application error type of a firing whose task's id another task has.
const IDTaken = "IDTaken"

// PlaceTaskInput is the input of PlaceTaskActivity: what decides about a task's lane, and its place in it.
type PlaceTaskInput struct {
	Cluster              string   `json:"cluster"`
	Tenant               string   `json:"tenant,omitempty"`
	Type                 string   `json:"type,omitempty"`
	Agent                string   `json:"agent,omitempty"`
	ShardKey             string   `json:"shard_key"`
	RequiredCapabilities []string `json:"required_capabilities,omitempty"`
	// Place is what the task asks for.
	Place api.Demand `json:"place,omitzero"`
	// Routes are the task's; their lanes are opened too.
	Routes []api.Route `json:"routes,omitempty"`
}

// PlaceOfSpec asks where a task goes.
func PlaceOfSpec(spec *api.TaskSpec, shardKey string) PlaceTaskInput {
	return PlaceTaskInput{Cluster: spec.Cluster, Tenant: spec.Tenant, Type: spec.Type, Agent: spec.Agent,
		ShardKey: shardKey, RequiredCapabilities: spec.RequiredCapabilities, Place: spec.Place, Routes: spec.Routes}
}

// TaskPlace is where a task waits. Hubs poll the lane.
type TaskPlace struct {
	Lane string `json:"lane"`
	// Sharded says that the shard key counts.
	Sharded bool `json:"sharded,omitempty"`
	// TenantWeight is the tenant's in the cluster, 0 if it has none.
	TenantWeight float64 `json:"tenant_weight,omitempty"`
	// Defaults are the defaults of the cluster's tasks.
	Defaults api.TaskDefaults `json:"defaults,omitzero"`
	// Types are the cluster's.
	Types cluster.LaneTypes `json:"types,omitzero"`
	// DeadLetterRetention is the cluster's.
	DeadLetterRetention api.Duration `json:"dead_letter_retention,omitempty"`
}

// PlaceOf is where a task goes in a cluster with these settings, which have their defaults. id is the shard key of a
// task without one.
func PlaceOf(c *api.ClusterConfig, types cluster.LaneTypes, spec api.TaskSpec, id string) TaskPlace {
	spec.ShardKey = cmp.Or(spec.ShardKey, id)
	return TaskPlace{
		Lane:                Lane(&spec, c.ShardCount(), types.Apart(spec.Type)),
		Types:               types,
		Sharded:             c.ShardCount() > 0,
		TenantWeight:        c.TenantWeights[spec.Tenant],
		Defaults:            c.TaskDefaults,
		DeadLetterRetention: c.DeadLetterRetention,
	}
}

// Opens reports whether tasks must have the lane opened before they wait there.
func (p *TaskPlace) Opens() bool {
	_, lane, _ := LaneOfQueue(p.Lane)
	return task.IsOpened(lane)
}

// OwnType reports whether the lane has tasks of one type only.
func (p *TaskPlace) OwnType() bool {
	_, lane, _ := LaneOfQueue(p.Lane)
	return task.IsTypeLane(lane)
}

// ShareTypes moves a task to the lane where it waits with tasks of other types.
func (p *TaskPlace) ShareTypes(spec *api.TaskSpec) { p.Lane = Lane(spec, 0, false) }

// Input starts a task at the place.
func (p *TaskPlace) Input(id string, spec api.TaskSpec) TaskInput {
	if p.Sharded {
		spec.ShardKey = cmp.Or(spec.ShardKey, id)
	}
	if n := len(spec.Routes); n > api.DefaultMaxAttempts && spec.Retry.MaxAttempts == 0 {
		spec.Retry.MaxAttempts = n // each is tried
	}
	task.PreferOpen(&spec)
	p.Defaults.Apply(&spec)
	return TaskInput{TaskID: id, Spec: spec, Lane: p.Lane, DeadLetterRetention: p.DeadLetterRetention}
}

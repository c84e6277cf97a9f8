// Package contract is the one place for names and messages that workflows, activities, hub and gateway share: task
// queues, workflow ids, search attributes, and the typed inputs of workflows, activities, signals, updates and queries.
package contract

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"mainstay.dev/mainstay/internal/array"
	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
)

// WorkerQueue is the task queue of all workflows and of the activities that call anything but agents.
const WorkerQueue = "mainstay"

// Workflow types.
const (
	ClusterWorkflow  = "Cluster"
	TaskWorkflow     = "Task"
	HubWorkflow      = "Hub"
	FailoverWorkflow = "Failover"
	DrainWorkflow    = "Drain"
	FiringWorkflow   = "Firing"
	BulkWorkflow     = "Bulk"
)

// HubQueue is the task queue of the activities that must run in one particular hub.
func HubQueue(hub string) string { return "hub/" + hub }

// ClusterWorkflowID is the id of the workflow that is the single writer of a cluster.
func ClusterWorkflowID(cluster string) string { return "cluster/" + cluster }

// ClusterOfWorkflowID is the inverse of ClusterWorkflowID.
func ClusterOfWorkflowID(id string) (string, bool) { return strings.CutPrefix(id, "cluster/") }

// HubWorkflowID is the id of the workflow that holds a hub's lease.
func HubWorkflowID(hub string) string { return "hub/" + hub }

// HubOfWorkflowID is the inverse of HubWorkflowID.
func HubOfWorkflowID(id string) (string, bool) { return strings.CutPrefix(id, "hub/") }

// FailoverWorkflowID is the id of the workflow that finishes and records the failover with an id.
func FailoverWorkflowID(id string) string { return "failover/" + strings.ReplaceAll(id, ":", "/") }

// FailoverOfWorkflowID is the inverse of FailoverWorkflowID.
func FailoverOfWorkflowID(workflowID string) (id string, ok bool) {
	rest, ok := strings.CutPrefix(workflowID, "failover/")
	if !ok || strings.Contains(rest, ":") {
		return "", false
	}
	id = strings.ReplaceAll(rest, "/", ":")
	_, _, _, ok = ParseFailoverID(id)
	return id, ok
}

// Locate says where a task lives: the workflow that carries it, and its key there, which is empty where the workflow is
// the task's own. Nothing else may assume one workflow per task. The id run~step is of a step of a run, array~.17 of
// an element of an array and array~.b4 of a bundle; clients' ids cannot hold the mark. The id job~~0.k3 is of an
// instance of a job, which has a workflow of its own.
func Locate(task string) (workflowID, key string) {
	if _, _, instance := job.CutInstanceID(task); instance {
		return TaskWorkflowID(task), ""
	}
	if id, key, found := strings.Cut(task, array.Mark); found {
		return ArrayWorkflowID(id), "." + key
	}
	if run, key, found := strings.Cut(task, job.StepMark); found {
		return RunWorkflowID(run), key
	}
	return TaskWorkflowID(task), ""
}

// RunWorkflowID is the id of the workflow of a run. Temporal appends the time to that of a run that a schedule starts.
func RunWorkflowID(run string) string {
	name, made, _ := strings.Cut(run, "@")
	stamp, trigger, _ := strings.Cut(made, "-")
	at, err := time.Parse(runTime, strings.ToUpper(stamp))
	n, _ := strconv.Atoi(trigger)
	if err != nil || ScheduledRunID(name, n, at) != run {
		return runPrefix + run
	}
	return ScheduledRunWorkflowID(name, n) + at.Format(firingTime)
}

// RunOfWorkflowID is the inverse of RunWorkflowID.
func RunOfWorkflowID(id string) (string, bool) {
	run, ok := strings.CutPrefix(id, runPrefix)
	cut := len(run) - len("-2006-01-02T15:04:05Z")
	if !ok || cut < 1 {
		return run, ok && run != ""
	}
	at, err := time.Parse(firingTime, run[cut:])
	if err != nil {
		return run, true
	}
	name, trigger, _ := strings.Cut(run[:cut], "/")
	n, _ := strconv.Atoi(trigger)
	return ScheduledRunID(name, n, at), true
}

const (
	runPrefix = "run/"
	runTime   = "20060102T150405Z"
)

// ScheduledRunID is the id of the run that a job's nth schedule starts at a time: "nightly@20261121t030000z".
func ScheduledRunID(job string, trigger int, at time.Time) string {
	id := job + "@" + strings.ToLower(at.UTC().Format(runTime))
	if trigger > 0 {
		id += "-" + strconv.Itoa(trigger)
	}
	return id
}

// ScheduledRunWorkflowID is what the action of a job's nth schedule names; Temporal appends the nominal time.
func ScheduledRunWorkflowID(job string, trigger int) string {
	if trigger > 0 {
		job += "/" + strconv.Itoa(trigger)
	}
	return runPrefix + job
}

// KeyedRunID is the id of the one run that an idempotency key may start of a job, by the job's full name.
func KeyedRunID(job, key string) string {
	tenant, name := api.CutTenant(job)
	return KeyedTaskID(tenant, name, key)
}

// RetryRunID is the id of the one run that repeats a run of a job from a step; "" stands for all that has not
// succeeded.
func RetryRunID(job, run, from string) string { return KeyedRunID(job, "retry\x00"+run+"\x00"+from) }

// JobScheduleID is the id of a job's nth schedule in Temporal.
func JobScheduleID(job string, trigger int) string { return "job/" + job + "/" + strconv.Itoa(trigger) }

// TaskWorkflowID is the id of the workflow that carries nothing but this task.
func TaskWorkflowID(task string) string { return "task/" + task }

// TaskOfWorkflowID is the inverse of TaskWorkflowID.
func TaskOfWorkflowID(id string) (string, bool) { return strings.CutPrefix(id, "task/") }

// KeyedTaskID is the id of the one task that an idempotency key may start in a tenant's cluster: "key@<hash>".
func KeyedTaskID(tenant, cluster, key string) string {
	h := sha256.New()
	for _, part := range []string{tenant, cluster, key} {
		h.Write([]byte(part))
		h.Write([]byte{0})
	}
	return api.Qualify(tenant, "key@"+hex.EncodeToString(h.Sum(nil)[:20]))
}

// ScheduleID is the id of a schedule in Temporal. Here and below, a schedule's name is the full one, with its tenant.
func ScheduleID(name string) string { return "schedule/" + name }

// ScheduleOfID is the inverse of ScheduleID.
func ScheduleOfID(id string) (string, bool) { return strings.CutPrefix(id, "schedule/") }

// FiringsWorkflowID is what a schedule's action names; Temporal appends the nominal time of each firing.
func FiringsWorkflowID(schedule string) string { return "firing/" + schedule }

// BulkWorkflowID is the id of the workflow of a bulk operation.
func BulkWorkflowID(bulk string) string { return "bulk/" + bulk }

// BulkOfWorkflowID is the inverse of BulkWorkflowID.
func BulkOfWorkflowID(id string) (string, bool) { return strings.CutPrefix(id, "bulk/") }

// AttemptActivityID is the activity id of a task's nth delivery; the Web UI shows it. It begins with the task's key
// where the workflow carries several tasks.
func AttemptActivityID(task string, number int) string {
	id := attemptMark + strconv.Itoa(number)
	if _, key := Locate(task); key != "" {
		return key + "/" + id
	}
	return id
}

const attemptMark = "attempt-"

// AttemptOfActivityID is the inverse of AttemptActivityID: the task's key and the number, which is 0 for other ids.
func AttemptOfActivityID(id string) (key string, number int) {
	if key, rest, found := strings.Cut(id, "/"); found {
		_, number = AttemptOfActivityID(rest)
		return key, number
	}
	if rest, ok := strings.CutPrefix(id, attemptMark); ok {
		number, _ = strconv.Atoi(rest)
	}
	return "", number
}

// LaneQueue is the task queue of a cluster's lane, by the lane's name (see task.ParseLane).
func LaneQueue(cluster, lane string) string {
	if lane == task.DefaultLane {
		return "lane/" + cluster
	}
	return "lane/" + cluster + "/" + lane
}

// LaneOfQueue is the inverse of LaneQueue.
func LaneOfQueue(queue string) (cluster, lane string, ok bool) {
	rest, ok := strings.CutPrefix(queue, "lane/")
	if !ok || rest == "" {
		return "", "", false
	}
	cluster, lane, named := strings.Cut(rest, "/")
	if !named {
		return cluster, task.DefaultLane, true
	}
	return cluster, lane, true
}

// ClusterLane holds the work of a cluster that any serving member may do.
func ClusterLane(cluster string) string { return LaneQueue(cluster, task.DefaultLane) }

// AgentLane holds the work pinned to one agent; it waits there while the agent is offline.
func AgentLane(cluster, agent string) string { return LaneQueue(cluster, task.AgentLane(agent)) }

// Lane is the queue where a task waits; see task.LaneOf.
func Lane(spec *api.TaskSpec, shards int, ownType bool) string {
	return LaneQueue(spec.Cluster, task.LaneOf(spec, shards, ownType))
}

// AgentIdentity is the identity of an agent in Temporal's worker registry and on the Workers page of the Web UI.
func AgentIdentity(cluster, agent string) string { return AgentIdentityPrefix(agent) + cluster }

// AgentIdentityPrefix is the start of an agent's identity, the same in every cluster.
func AgentIdentityPrefix(agent string) string { return "agent/" + agent + "@" }

// AgentOfIdentity is the inverse of AgentIdentity.
func AgentOfIdentity(identity string) (cluster, agent string, ok bool) {
	rest, ok := strings.CutPrefix(identity, "agent/")
	if !ok {
		return "", "", false
	}
	agent, cluster, ok = strings.Cut(rest, "@")
	return cluster, agent, ok
}

// AgentKey is the key of one process of an agent in Temporal's worker registry. Agents choose their instance ids
// themselves, so an instance id alone could be another's too.
func AgentKey(cluster, agent, instance string) string {
	return AgentIdentity(cluster, agent) + "/" + instance
}

// InstanceOfKey is the instance id in an AgentKey of the agent with an identity.
func InstanceOfKey(identity, key string) string { return strings.TrimPrefix(key, identity+"/") }

// HubIdentity is the identity with which a hub polls lanes.
func HubIdentity(hub string) string { return "hub/" + hub }

// HubOfIdentity is the inverse of HubIdentity.
func HubOfIdentity(identity string) (hub string, ok bool) { return strings.CutPrefix(identity, "hub/") }

// WorkflowsVersion is raised when workflows change so that open ones cannot be replayed any more; from 0.1.0 on that
// must not happen (CONTRIBUTING.md, "Changing a workflow"). `mainstay dev` keeps it in its data directory and says so
// when it finds another one, instead of failing with every workflow.
const WorkflowsVersion = 7

package gateway

import (
	"encoding/json"
	"errors"
	"time"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
)

// TaskRequest is a task as a client submits it.
type TaskRequest struct {
	ID                    string            `json:"id,omitempty" maxLength:"127" pattern:"^([a-z0-9][a-z0-9._-]*:)?[a-z0-9][a-z0-9._-]*$" doc:"The task's id, up to 63 characters; the task's tenant and a colon may stand before it, as in the id of the answer. Left out: one is made. Submitting the same task again answers the one that has the id; another body is refused with 409 idempotency_conflict."`
	IdempotencyKey        string            `json:"idempotency_key,omitempty" maxLength:"256" doc:"One key in a tenant and cluster starts one task, however often it is submitted, also after the task has ended. With another body it is refused with 409 idempotency_conflict. Not together with id."`
	Type                  string            `json:"type" maxLength:"63" pattern:"^[a-z0-9][a-z0-9._-]*$" doc:"What kind of work it is; agents declare which types they handle."`
	Cluster               string            `json:"cluster" maxLength:"63" pattern:"^[a-z0-9][a-z0-9._-]*$" doc:"The cluster whose agents may do it."`
	Payload               json.RawMessage   `json:"payload,omitempty" doc:"Any JSON up to 1 MiB; handed to the agent's handler."`
	Priority              Priority          `json:"priority,omitempty" doc:"1 (first) to 5 (last), or critical, high, normal, low or background. Default 3, normal."`
	Agent                 string            `json:"agent,omitempty" maxLength:"63" pattern:"^[a-z0-9][a-z0-9._-]*$" doc:"Only this agent may do it. It need not be online: the task waits for it."`
	ShardKey              string            `json:"shard_key,omitempty" maxLength:"256" doc:"In a sharded cluster, tasks of one key go to one shard. Left out: the task's id."`
	RequiredCapabilities  []string          `json:"required_capabilities,omitempty" maxItems:"32" doc:"Only agents with all of these may do it."`
	PreferredCapabilities []string          `json:"preferred_capabilities,omitempty" maxItems:"32" doc:"Agents with these are preferred."`
	Affinity              string            `json:"affinity,omitempty" maxLength:"256" doc:"The agent that is preferred for it."`
	Retry                 RetryRequest      `json:"retry,omitzero" doc:"Bounds and spaces the attempts."`
	RetrySafety           fleet.RetrySafety `json:"retry_safety,omitempty" enum:"idempotent,fenced,at_most_once" doc:"When it may run again after its agent was lost: at once (idempotent, the default), after the lost agent's lease has ended (fenced), or only when a person says so (at_most_once)."`
	Timeout               fleet.Duration    `json:"timeout,omitempty" pattern:"^[0-9]([0-9.:hms]|ns|us|µs)*$" doc:"How long one attempt may run. Default 24h."`
	StartAt               time.Time         `json:"start_at,omitzero" doc:"When it may first be delivered, at most a year ahead. In the past or left out: at once."`
	ExpiresIn             fleet.Duration    `json:"expires_in,omitempty" pattern:"^[0-9]([0-9.:hms]|ns|us|µs)*$" doc:"How long it may wait for an agent before it expires, counted from start_at. Default 1h."`
	BeaconTimeout         fleet.Duration    `json:"beacon_timeout,omitempty" pattern:"^[0-9]([0-9.:hms]|ns|us|µs)*$" doc:"An attempt whose handler gives no sign of life for this long is ended and counts as failed. 45s, with a sign every 15s, is the usual choice. Default: not watched."`
	Provider              string            `json:"provider,omitempty" maxLength:"63" pattern:"^[a-z0-9][a-z0-9._-]*$" doc:"The outside service that it calls, as agents name it. Agents with access are preferred; one that the provider limits the rate of does not get it before the limit ends."`
	Tenant                string            `json:"tenant,omitempty" maxLength:"63" pattern:"^[a-z0-9][a-z0-9._-]*$" doc:"Whose work it is; tenants share agents fairly."`
	Labels                map[string]string `json:"labels,omitempty" doc:"Up to 16 names and values, to find tasks by."`
}

// RetryRequest is fleet.RetryPolicy as a client submits it.
type RetryRequest struct {
	MaxAttempts     int            `json:"max_attempts,omitempty" minimum:"0" maximum:"100" doc:"Attempts that may fail before the task is a dead letter. Default 3."`
	MaxTransfers    int            `json:"max_transfers,omitempty" minimum:"0" maximum:"100" doc:"Agents the task may be lost with before it is a dead letter. Default 3."`
	InitialInterval fleet.Duration `json:"initial_interval,omitempty" pattern:"^[0-9]([0-9.:hms]|ns|us|µs)*$" doc:"Wait before the second attempt; doubles each time. Default 2s."`
	MaxInterval     fleet.Duration `json:"max_interval,omitempty" pattern:"^[0-9]([0-9.:hms]|ns|us|µs)*$" doc:"Longest wait between attempts. Default 5m."`
	NonRetryable    []string       `json:"non_retryable,omitempty" maxItems:"32" doc:"Types of failures, as agents report them in error_type, that must not be tried again: the task fails at once."`
}

// spec is the task without the fields that only name it.
func (r *TaskRequest) spec() fleet.TaskSpec {
	return fleet.TaskSpec{
		Type: r.Type, Cluster: r.Cluster, Payload: r.Payload, Priority: fleet.Priority(r.Priority), Agent: r.Agent, ShardKey: r.ShardKey,
		RequiredCapabilities: r.RequiredCapabilities, PreferredCapabilities: r.PreferredCapabilities, Affinity: r.Affinity,
		Retry: fleet.RetryPolicy{
			MaxAttempts: r.Retry.MaxAttempts, MaxTransfers: r.Retry.MaxTransfers,
			InitialInterval: r.Retry.InitialInterval, MaxInterval: r.Retry.MaxInterval, NonRetryable: r.Retry.NonRetryable,
		},
		RetrySafety: r.RetrySafety, Timeout: r.Timeout, StartAt: r.StartAt.UTC(), ExpiresIn: r.ExpiresIn, BeaconTimeout: r.BeaconTimeout,
		Provider: r.Provider, Tenant: r.Tenant, Labels: r.Labels,
	}
}

// requestOf is the inverse of spec.
func requestOf(s *fleet.TaskSpec) TaskRequest {
	return TaskRequest{
		Type: s.Type, Cluster: s.Cluster, Payload: s.Payload, Priority: Priority(s.Priority), Agent: s.Agent, ShardKey: s.ShardKey,
		RequiredCapabilities: s.RequiredCapabilities, PreferredCapabilities: s.PreferredCapabilities, Affinity: s.Affinity,
		Retry: RetryRequest{
			MaxAttempts: s.Retry.MaxAttempts, MaxTransfers: s.Retry.MaxTransfers,
			InitialInterval: s.Retry.InitialInterval, MaxInterval: s.Retry.MaxInterval, NonRetryable: s.Retry.NonRetryable,
		},
		RetrySafety: s.RetrySafety, Timeout: s.Timeout, ExpiresIn: s.ExpiresIn, BeaconTimeout: s.BeaconTimeout,
		Provider: s.Provider, Tenant: s.Tenant, Labels: s.Labels,
	}
}

// taskID is the full id that the task will have; fresh makes one when the client left it open.
func (r *TaskRequest) taskID(fresh func() string) (string, error) {
	switch {
	case r.ID != "" && r.IdempotencyKey != "":
		return "", errors.New("give id or idempotency_key, not both")
	case r.ID != "":
		tenant, name := fleet.CutTenant(r.ID)
		if tenant != "" && tenant != r.Tenant {
			return "", errors.New("names another tenant than the field tenant")
		}
		return fleet.Qualify(r.Tenant, name), fleet.ValidateTaskID(name)
	case r.IdempotencyKey != "":
		return contract.KeyedTaskID(r.Tenant, r.Cluster, r.IdempotencyKey), nil
	}
	return fleet.Qualify(r.Tenant, fresh()), nil
}

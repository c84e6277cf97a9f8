package config

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"mainstay.dev/sdk/api"
)

// Bounds of the hub's timing, also where it follows from other times.
const (
	minTiming = 50 * time.Millisecond
	maxTiming = 10 * time.Minute
)

// Validate checks a configuration that was made or changed in code; Load and Parse have done it. Its error is an *Error
// without file and lines.
func (c *Config) Validate() error {
	if problems := c.problems(); len(problems) > 0 {
		return &Error{Problems: problems}
	}
	return nil
}

// checker gathers problems.
type checker struct{ problems []Problem }

func (k *checker) check(ok bool, field, format string, args ...any) bool {
	if !ok {
		k.problems = append(k.problems, Problem{Field: field, What: fmt.Sprintf(format, args...)})
	}
	return ok
}

// within holds a section to the bounds in its tags.
func (k *checker) within(at string, section any) {
	if wrong, ok := errors.AsType[*api.FieldError](api.Within(at+".", section)); ok {
		k.check(false, wrong.Field, "%v", wrong.Err)
	}
}

// timing checks one of the hub's times.
func (k *checker) timing(field string, d time.Duration) bool {
	return k.check(d >= minTiming && d <= maxTiming, field, "must lie between %s and %s", minTiming, maxTiming)
}

func (k *checker) address(field, address string) {
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	k.check(err == nil, field, "must be host:port with a port from 0 to 65535, like 127.0.0.1:8080")
}

func (k *checker) id(field, id string) bool {
	return k.check(api.ValidateID(field, id) == nil, field,
		`must be 1 to %d characters of a-z, 0-9, ".", "_" and "-", and begin with a letter or digit`, api.MaxIDLength)
}

func (c *Config) problems() []Problem {
	k := &checker{}
	k.address("http.listen", c.HTTP.Listen)
	k.check(c.Temporal.Address != "", "temporal.address", "must be host:port, like 127.0.0.1:7233")
	k.check(c.Temporal.Namespace != "", "temporal.namespace", "must be the name of a namespace, like default")
	k.dev(c.Dev)
	k.hub(c)
	k.spawner(&c.Spawner)
	k.security(c.Security)
	seen := map[string]string{}
	for i, cluster := range c.Clusters {
		k.cluster(fmt.Sprintf("clusters[%d]", i), "target_group", cluster, c.Timing().FailureThreshold, seen)
	}
	if c.AgentCluster != nil {
		k.cluster("agent_cluster", "target_group_id", c.AgentCluster.cluster(), c.Timing().FailureThreshold, seen)
	}
	return k.problems
}

func (k *checker) dev(d Dev) {
	k.address("dev.temporal", d.Temporal)
	if d.UI != "" {
		k.address("dev.ui", d.UI)
	}
	k.within("dev", d)
	k.check(slices.Contains([]Durability{DurableProcess, DurablePower, DurableNone}, d.Durability),
		"dev.durability", "must be process, power or none")
}

func (k *checker) hub(c *Config) {
	if c.Hub.ID != "" {
		k.id("hub.id", c.Hub.ID)
	}
	k.within("hub", Hub{LanePollers: c.Hub.LanePollers, AcceptTimeout: c.Hub.AcceptTimeout,
		HealthCheckInterval: c.Hub.HealthCheckInterval, Park: c.Hub.Park})

	// A threshold is reported where it is written.
	var health HealthMonitoring
	if c.AgentCluster != nil {
		health = c.AgentCluster.HealthMonitoring
	}
	timing := c.Timing()
	field := func(name string, effective time.Duration, here api.Duration) string {
		if here != 0 && here.Std() == effective {
			return "agent_cluster.health_monitoring." + name
		}
		return "hub." + name
	}
	heartbeat := field("heartbeat_interval", timing.HeartbeatInterval, health.HeartbeatInterval)
	warning := field("warning_threshold", timing.WarningThreshold, health.WarningThreshold)
	failure := field("failure_threshold", timing.FailureThreshold, health.FailureThreshold)
	ok := k.timing(heartbeat, timing.HeartbeatInterval)
	ok = k.timing(warning, timing.WarningThreshold) && ok
	ok = k.timing(failure, timing.FailureThreshold) && ok
	ok = k.timing("hub.crowd_interval", timing.CrowdInterval) && ok
	ok = k.timing("hub.disconnect_grace", timing.DisconnectGrace) && ok
	if !ok {
		return
	}
	k.check(timing.WarningThreshold > timing.HeartbeatInterval, warning,
		"must be longer than heartbeat_interval (%s)", timing.HeartbeatInterval)
	k.check(timing.FailureThreshold > timing.WarningThreshold, failure,
		"must be longer than warning_threshold (%s)", timing.WarningThreshold)
	k.check(timing.DisconnectGrace <= timing.FailureThreshold, "hub.disconnect_grace",
		"must not be longer than failure_threshold (%s)", timing.FailureThreshold)
}

// cluster checks what every cluster has. seen holds the fields of the names before.
func (k *checker) cluster(at, targetGroup string, c Cluster, failure time.Duration, seen map[string]string) {
	before := len(k.problems)
	if k.id(at+".name", c.Name) {
		first, twice := seen[c.Name]
		k.check(!twice, at+".name", "must differ from the other clusters' names; %s.name is the same", first)
		seen[c.Name] = at
	}
	k.check(len(c.TargetGroup) <= 255, at+"."+targetGroup, "must have at most 255 characters")
	full := c.fleetConfig()
	k.check(slices.Contains([]api.ReplicationMode{api.ActiveActive, api.ActivePassive, api.Sharded},
		full.ReplicationMode),
		at+".replication_mode", "must be active_active, active_passive or sharded")

	members := at + ".membership"
	k.check(full.MinAgents >= 0 && full.MinAgents <= full.MaxAgents, members+".minimum_agents",
		"must lie between 0 and max_agents (%d)", full.MaxAgents)
	k.check(
		full.DesiredAgents == 0 || full.DesiredAgents >= full.MinAgents && full.DesiredAgents <= full.MaxAgents,
		members+".desired_agents",
		"must lie between minimum_agents (%d) and max_agents (%d), or be 0",
		full.MinAgents,
		full.MaxAgents,
	)

	k.check(slices.Contains([]api.SelectionStrategy{api.SelectStandby, api.SelectLeastLoaded,
		api.SelectRoundRobin, api.SelectAffinity}, full.Selection),
		at+".failover.selection_strategy", "must be standby, least_loaded, round_robin or affinity")
	k.within(at, Cluster{Shards: c.Shards, Membership: c.Membership, Failover: c.Failover, TaskQueue: c.TaskQueue,
		LeaderElection: c.LeaderElection})
	if err := full.SelfHealing.Validate(); err != nil {
		k.check(false, at+".self_healing", "%v", err)
	}
	k.check(c.TaskQueue.RetrySafety.Validate() == nil, at+".task_queue.retry_safety",
		"must be idempotent, fenced, at_most_once or unmarked")
	k.election(at+".leader_election", c.LeaderElection, failure)
	err := full.Brake.Validate()
	k.check(err == nil, at+".brake", "%v", err)
	if err := full.Scaling.Validate(); err != nil {
		var wrong *api.FieldError
		if !errors.As(err, &wrong) {
			wrong = &api.FieldError{Field: "scaling", Err: err}
		}
		k.check(false, at+"."+wrong.Field, "%v", wrong.Err)
	}

	if len(k.problems) == before {
		err := full.Validate() // other rules of api
		k.check(err == nil, at, "%v", err)
	}
}

// election checks an election. The default lease is not refused where hubs give up agents even sooner.
func (k *checker) election(at string, e LeaderElection, failure time.Duration) {
	k.check(e.LeaseDuration.Std() <= max(failure, api.DefaultRoleLease), at+".lease_duration",
		"must not be longer than hub.failure_threshold (%s), after which hubs give up a silent agent", failure)
	k.check(e.LeaseDuration == 0 || e.LeaseDuration >= 2*e.ElectionInterval,
		at+".lease_duration", "must be at least twice election_interval (%s)", e.ElectionInterval)
}

package config

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"mainstay.dev/mainstay/fleet"
)

// Bounds of the hub's timing, and of everything that takes longer than the blink of an eye.
const (
	minTiming = 50 * time.Millisecond
	maxTiming = 10 * time.Minute
	minPeriod = time.Second
	maxPeriod = 365 * 24 * time.Hour

	maxExpiration = 30 * 24 * time.Hour
	minElection   = 100 * time.Millisecond
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

func (k *checker) count(field string, n, low, high int) {
	k.check(n >= low && n <= high, field, "must lie between %d and %d", low, high)
}

// duration takes zero as "the default".
func (k *checker) duration(field string, d fleet.Duration, low, high time.Duration) bool {
	return k.check(d == 0 || d.Std() >= low && d.Std() <= high, field, "must lie between %s and %s", low, high)
}

func (k *checker) address(field, address string) {
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	k.check(err == nil, field, "must be host:port with a port from 0 to 65535, like 127.0.0.1:8080")
}

func (k *checker) id(field, id string) bool {
	return k.check(fleet.ValidateID(field, id) == nil, field,
		`must be 1 to %d characters of a-z, 0-9, ".", "_" and "-", and begin with a letter or digit`, fleet.MaxIDLength)
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
	k.count("dev.agents", d.Agents, 0, 100)
	k.count("dev.slots", d.Slots, 1, 1000)
	k.check(slices.Contains([]Durability{DurableProcess, DurablePower, DurableNone}, d.Durability),
		"dev.durability", "must be process, power or none")
}

func (k *checker) hub(c *Config) {
	if c.Hub.ID != "" {
		k.id("hub.id", c.Hub.ID)
	}
	k.count("hub.lane_pollers", c.Hub.LanePollers, 1, 1000)
	k.duration("hub.accept_timeout", c.Hub.AcceptTimeout, minTiming, maxTiming)
	k.duration("hub.health_check_interval", c.Hub.HealthCheckInterval, minTiming, maxTiming)
	k.duration("hub.park", c.Hub.Park, minTiming, maxTiming)

	// A threshold is reported where it is written.
	var health HealthMonitoring
	if c.AgentCluster != nil {
		health = c.AgentCluster.HealthMonitoring
	}
	timing := c.Timing()
	field := func(name string, effective time.Duration, here fleet.Duration) string {
		if here != 0 && here.Std() == effective {
			return "agent_cluster.health_monitoring." + name
		}
		return "hub." + name
	}
	heartbeat := field("heartbeat_interval", timing.HeartbeatInterval, health.HeartbeatInterval)
	warning := field("warning_threshold", timing.WarningThreshold, health.WarningThreshold)
	failure := field("failure_threshold", timing.FailureThreshold, health.FailureThreshold)
	ok := k.duration(heartbeat, fleet.Duration(timing.HeartbeatInterval), minTiming, maxTiming)
	ok = k.duration(warning, fleet.Duration(timing.WarningThreshold), minTiming, maxTiming) && ok
	ok = k.duration(failure, fleet.Duration(timing.FailureThreshold), minTiming, maxTiming) && ok
	ok = k.duration("hub.crowd_interval", fleet.Duration(timing.CrowdInterval), minTiming, maxTiming) && ok
	ok = k.duration("hub.disconnect_grace", fleet.Duration(timing.DisconnectGrace), minTiming, maxTiming) && ok
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
	k.check(slices.Contains([]fleet.ReplicationMode{fleet.ActiveActive, fleet.ActivePassive, fleet.Sharded},
		full.ReplicationMode),
		at+".replication_mode", "must be active_active, active_passive or sharded")
	k.count(at+".shards", full.Shards, 1, 1024)

	members := at + ".membership"
	k.count(members+".max_agents", c.Membership.MaxAgents, 0, fleet.MaxMembers)
	k.check(full.MinAgents >= 0 && full.MinAgents <= full.MaxAgents, members+".minimum_agents",
		"must lie between 0 and max_agents (%d)", full.MaxAgents)
	k.check(
		full.DesiredAgents == 0 || full.DesiredAgents >= full.MinAgents && full.DesiredAgents <= full.MaxAgents,
		members+".desired_agents",
		"must lie between minimum_agents (%d) and max_agents (%d), or be 0",
		full.MinAgents,
		full.MaxAgents,
	)

	k.check(slices.Contains([]fleet.SelectionStrategy{fleet.SelectStandby, fleet.SelectLeastLoaded,
		fleet.SelectRoundRobin, fleet.SelectAffinity}, full.Selection),
		at+".failover.selection_strategy", "must be standby, least_loaded, round_robin or affinity")
	k.duration(at+".failover.task_transfer_timeout", c.Failover.TaskTransferTimeout, minPeriod, time.Hour)
	k.count(at+".failover.max_transfer_retries", c.Failover.MaxTransferRetries, 0, 100)
	if err := full.SelfHealing.Validate(); err != nil {
		k.check(false, at+".self_healing", "%v", err)
	}
	k.taskQueue(at+".task_queue", c.TaskQueue)
	k.election(at+".leader_election", c.LeaderElection, failure)
	err := full.Brake.Validate()
	k.check(err == nil, at+".brake", "%v", err)
	if err := full.Scaling.Validate(); err != nil {
		var wrong *fleet.FieldError
		if !errors.As(err, &wrong) {
			wrong = &fleet.FieldError{Field: "scaling", Err: err}
		}
		k.check(false, at+"."+wrong.Field, "%v", wrong.Err)
	}

	if len(k.problems) == before {
		err := full.Validate() // what fleet may come to forbid
		k.check(err == nil, at, "%v", err)
	}
}

func (k *checker) taskQueue(at string, q TaskQueue) {
	k.count(at+".max_delivery_attempts", q.MaxDeliveryAttempts, 0, 100)
	k.duration(at+".default_expiration", q.DefaultExpiration, minPeriod, maxExpiration)
	k.duration(at+".dead_letter_retention", q.DeadLetterRetention, minPeriod, maxPeriod)
	k.check(q.RetrySafety.Validate() == nil, at+".retry_safety",
		"must be idempotent, fenced, at_most_once or unmarked")
}

// election checks an election. The default lease is not refused where hubs give up agents even sooner.
func (k *checker) election(at string, e LeaderElection, failure time.Duration) {
	ok := k.duration(at+".election_interval", e.ElectionInterval, minElection, time.Hour)
	if k.duration(at+".lease_duration", e.LeaseDuration, minPeriod, time.Hour) && ok {
		k.check(e.LeaseDuration.Std() <= max(failure, fleet.DefaultRoleLease), at+".lease_duration",
			"must not be longer than hub.failure_threshold (%s), after which hubs give up a silent agent", failure)
		k.check(e.LeaseDuration == 0 || e.LeaseDuration >= 2*e.ElectionInterval,
			at+".lease_duration", "must be at least twice election_interval (%s)", e.ElectionInterval)
	}
}

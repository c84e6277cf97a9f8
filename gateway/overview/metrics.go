package overview

import (
	"context"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/sdk/api"
)

const (
	// lostKept is how long a lost agent has a metric with its name.
	lostKept = 24 * time.Hour
	// leaderPartition is the one partition of an active_passive cluster. Those of a sharded one have numbers.
	leaderPartition = "leader"
)

// fleetMetrics describe the fleet as a whole. A scrape reads them from the clusters' workflows and from Temporal. Every
// gateway has the same values, so join them by max; never sum over gateways.
type fleetMetrics struct {
	reader *fleetReader
	reads  *prometheus.CounterVec

	members, leader, health, depth, deadLetters            *prometheus.Desc
	up, leases, partitionLeader, leaseEpoch, handovers     *prometheus.Desc
	live, partitions, orphaned                             *prometheus.Desc
	desired, minimum, oldest, reviews, paused, brake, lost *prometheus.Desc
	unread, scalings, scalingBlocked, held, unmatched      *prometheus.Desc
	deployments, overdue, short                            *prometheus.Desc
}

// NewMetrics makes the metrics of the fleet, which read it when they are asked for.
func NewMetrics(h *Handlers) prometheus.Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &fleetMetrics{
		reader: &fleetReader{handlers: h},
		reads: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "mainstay_gateway_fleet_reads_total",
			Help: "How often the fleet was read for its metrics, by outcome: ok or failed."}, []string{"outcome"}),
		members: desc(
			"stella_agent_cluster_members",
			"Agents of the cluster, by status: online, suspect, warning, stopping, offline, draining or maintenance.",
			"cluster_id",
			"status",
		),
		leader: desc("stella_agent_cluster_leader", "1 for the agent that leads an active_passive cluster.",
			"cluster_id", "agent_id"),
		health: desc("stella_agent_cluster_health",
			"Whether the cluster has the agents that it should have: 1 healthy, 0.5 degraded, 0 critical.",
			"cluster_id"),
		depth: desc("stella_agent_queue_depth",
			"Tasks that wait in the cluster's lanes for an agent, by priority. Approximate, and some seconds old.",
			"cluster_id", "priority"),
		deadLetters: desc("stella_agent_dead_letter_queue_depth",
			"Dead letters of the cluster: tasks whose attempts are used up, kept for a retry.", "cluster_id"),
		up: desc(
			"stella_agent_up",
			"1 while the agent is connected, 0 while it is suspect, silent or lost. A lost agent is reported for one day; "+
				"one that said goodbye or is in maintenance is not.",
			"agent_id",
		),
		leases: desc("stella_agent_lease_count",
			"Partitions that the agent leads: shards that it owns, and 1 for an active_passive cluster that it leads.",
			"agent_id"),
		partitionLeader: desc("stella_agent_partition_leader_agent_id",
			"1 for the agent that leads the partition: a shard's number, or leader for an active_passive cluster.",
			"cluster_id", "partition", "agent_id"),
		leaseEpoch: desc("stella_agent_partition_lease_epoch",
			"Epoch of the newest leadership of the partition. It only grows.", "cluster_id", "partition"),
		handovers: desc("stella_agent_partition_failover_count",
			"How often the partition went from one agent to another.", "cluster_id", "partition"),
		live: desc(
			"stella_agent_live_agents",
			"Agents that are connected and neither suspect nor silent, in all clusters.",
		),
		partitions: desc("stella_agent_total_partitions",
			"Partitions of all clusters: shards, and one for each active_passive cluster."),
		orphaned: desc("stella_agent_orphaned_partitions", "Partitions that nobody leads."),
		desired: desc("mainstay_cluster_agents_desired",
			"Agents that the cluster should have, by scaling or its settings; 0: none, or no number was set.", "cluster_id"),
		minimum: desc("mainstay_cluster_agents_minimum",
			"Agents with fewer of which the cluster is critical; 0: no number was set.", "cluster_id"),
		lost: desc("mainstay_cluster_agents_lost",
			"Agents of the cluster that were lost within the last day and are not back.", "cluster_id"),
		oldest: desc("mainstay_cluster_queue_oldest_age_seconds",
			"How long the oldest task has waited in a lane of the cluster for an agent; 0 when none waits.",
			"cluster_id"),
		reviews: desc("mainstay_cluster_reviews_waiting",
			"Tasks in review, blocked runs and blocked arrays of the cluster, which wait for a person's decision.",
			"cluster_id"),
		paused: desc("mainstay_cluster_pauses",
			"Pauses of the cluster and its lanes: what they name takes nothing until it is resumed.", "cluster_id"),
		brake: desc("mainstay_cluster_brakes_engaged",
			"Mass-loss brakes that hold lost agents of the cluster: of its hubs, or over all of them.", "cluster_id"),
		scalings: desc(
			"mainstay_cluster_scaling_actions_total",
			"Changes of the number of agents by scaling that have ended, "+
				"by change (up or down) and outcome (succeeded or failed).",
			"cluster_id",
			"change",
			"outcome",
		),
		scalingBlocked: desc("mainstay_cluster_scaling_blocked",
			"1 while scaling cannot start wanted agents (up) or stop surplus ones (down).", "cluster_id", "change"),
		deployments: desc("mainstay_cluster_deployments",
			"Jobs of the cluster whose newest version is being deployed (running), "+
				"waits for its promotion (waiting), or could not be deployed (failed).",
			"cluster_id", "status"),
		overdue: desc("mainstay_cluster_deployments_overdue",
			"Deployments of the cluster that have not ended although a deadline of theirs passed a minute ago or more.",
			"cluster_id"),
		short: desc("mainstay_cluster_services_short",
			"Services of the cluster with fewer healthy instances than they are to have. "+
				"Stopped and paused ones are not counted.",
			"cluster_id"),
		held: desc("mainstay_events_quarantined",
			"Events from outside that could not be dispatched, or whose work died: they wait for a person."),
		unmatched: desc("mainstay_events_unmatched",
			"Events from outside that nothing asks for: each can be replayed for 7 days, and is closed then."),
		unread: desc("mainstay_gateway_fleet_unread_clusters",
			"Clusters that did not answer when the fleet was last read; their metrics are missing."),
	}
}

func (m *fleetMetrics) descs() []*prometheus.Desc {
	return []*prometheus.Desc{m.members, m.leader, m.health, m.depth, m.deadLetters, m.up, m.leases, m.partitionLeader,
		m.leaseEpoch, m.handovers,
		m.live, m.partitions, m.orphaned, m.desired, m.minimum, m.lost,
		m.oldest, m.reviews, m.paused, m.brake, m.unread, m.scalings, m.scalingBlocked, m.held, m.unmatched,
		m.deployments, m.overdue, m.short}
}

// Describe implements prometheus.Collector.
func (m *fleetMetrics) Describe(descs chan<- *prometheus.Desc) {
	m.reads.Describe(descs)
	for _, d := range m.descs() {
		descs <- d
	}
}

// Collect implements prometheus.Collector. While the fleet cannot be read it sends no values, because the old ones may
// be wrong.
func (m *fleetMetrics) Collect(metrics chan<- prometheus.Metric) {
	reading := m.reader.reading(
		context.Background(), //nolint:forbidigo // a collector gets no context; the read bounds itself
		func(err error) {
			outcome := "ok"
			if err != nil {
				outcome = "failed"
			}
			m.reads.WithLabelValues(outcome).Inc()
		},
	)
	m.reads.Collect(metrics)
	if reading == nil {
		return
	}
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	all, partitions, orphaned := agents{}, 0, 0
	for i := range reading.clusters {
		c := &reading.clusters[i]
		m.add(all, gauge, &c.Cluster, reading)
		m.collectCluster(gauge, c)
		for _, p := range partitionsOf(&c.Cluster) {
			partitions++
			if p.leader == "" {
				orphaned++
			} else {
				gauge(m.partitionLeader, 1, c.Config.Name, p.name, p.leader)
			}
			gauge(m.leaseEpoch, float64(p.epoch), c.Config.Name, p.name)
			metrics <- prometheus.MustNewConstMetric(m.handovers, prometheus.CounterValue, float64(p.handovers),
				c.Config.Name, p.name)
		}
		if c.Scaling != nil {
			m.collectScaling(metrics, c.Config.Name, api.ScaleUp, c.Scaling.Ups, c.Scaling.Blocked)
			m.collectScaling(metrics, c.Config.Name, api.ScaleDown, c.Scaling.Downs, c.Scaling.Stuck)
		}
	}
	gauge(m.live, float64(m.tell(all, gauge)))
	gauge(m.partitions, float64(partitions))
	gauge(m.orphaned, float64(orphaned))
	gauge(m.unread, float64(reading.unread))
	gauge(m.held, float64(reading.held))
	gauge(m.unmatched, float64(reading.unmatched))
}

// collectScaling sends one direction of a cluster's scaling, but only if the cluster has ever had scaling on.
func (m *fleetMetrics) collectScaling(metrics chan<- prometheus.Metric, clusterName string, change api.ScaleChange,
	ends cluster.ScalingEnds, blocked *api.ScalingBlocked,
) {
	for outcome, n := range map[string]int64{"succeeded": ends.Succeeded, "failed": ends.Failed} {
		metrics <- prometheus.MustNewConstMetric(m.scalings, prometheus.CounterValue, float64(n), clusterName,
			string(change), outcome)
	}
	is := 0.0
	if blocked != nil {
		is = 1
	}
	metrics <- prometheus.MustNewConstMetric(m.scalingBlocked, prometheus.GaugeValue, is, clusterName, string(change))
}

type gaugeFunc func(desc *prometheus.Desc, value float64, labels ...string)

// healthValues are the cluster statuses as numbers.
var healthValues = map[api.ClusterStatus]float64{api.ClusterHealthy: 1, api.ClusterDegraded: 0.5,
	api.ClusterCritical: 0}

func (m *fleetMetrics) collectCluster(gauge gaugeFunc, c *clusterReading) {
	name := c.Config.Name
	if c.Config.ReplicationMode == api.ActivePassive && c.Leader != "" {
		gauge(m.leader, 1, name, c.Leader)
	}
	gauge(m.health, healthValues[c.Status()], name)
	for p := api.PriorityCritical; p.Valid(); p++ {
		gauge(m.depth, float64(c.waiting[p]), name, p.String())
	}
	gauge(m.deadLetters, float64(c.deadLetters), name)
	gauge(m.desired, float64(c.Wanted()), name)
	gauge(m.minimum, float64(c.Config.MinAgents), name)
	gauge(m.oldest, c.oldest.Seconds(), name)
	gauge(m.reviews, float64(c.reviews), name)
	gauge(m.paused, float64(len(c.Pauses)), name)
	gauge(m.brake, float64(len(c.BrakeHolds)), name)
	for _, status := range toldDeployments {
		gauge(m.deployments, float64(c.services.deployments[status]), name, string(status))
	}
	gauge(m.overdue, float64(c.services.overdue), name)
	gauge(m.short, float64(c.services.short), name)
}

// agents are the connected and the lost agents of all clusters by id: one that is lost in a cluster may have joined
// another.
type agents map[string]agentStanding

type agentStanding struct {
	up     bool
	known  bool // connected, though it may be suspect
	leases int
}

// add sends a cluster's counts of members by status, and gathers the members by id.
func (m *fleetMetrics) add(all agents, gauge gaugeFunc, c *cluster.Cluster, reading *fleetReading) {
	byStatus, lost, leases := map[api.AgentStatus]int{}, 0, map[string]int{}
	for _, p := range partitionsOf(c) {
		leases[p.leader]++
	}
	for i := range c.Members {
		member := &c.Members[i]
		status, _, _ := reading.live.Status(member)
		byStatus[status]++
		gone := member.Status == api.AgentOffline && reading.at.Sub(member.StatusSince) < lostKept
		if gone {
			lost++
		}
		if !gone && !member.Connected() || all[member.AgentID].known {
			continue
		}
		all[member.AgentID] = agentStanding{
			up: member.Connected() && status != api.AgentSuspect &&
				status != api.AgentWarning, known: member.Connected(), leases: leases[member.AgentID]}
	}
	for _, status := range api.AgentStatuses {
		gauge(m.members, float64(byStatus[status]), c.Config.Name, string(status))
	}
	gauge(m.lost, float64(lost), c.Config.Name)
}

// tell sends the metrics of each agent and returns how many are connected.
func (m *fleetMetrics) tell(all agents, gauge gaugeFunc) (live int) {
	for id, a := range all {
		up := 0.0
		if a.up {
			up = 1
			live++
		}
		gauge(m.up, up, id)
		if a.known {
			gauge(m.leases, float64(a.leases), id)
		}
	}
	return live
}

// partition is something that one agent leads at a time.
type partition struct {
	name, leader     string
	epoch, handovers int64
}

// partitionsOf are the shards of a sharded cluster, or the leadership of an active_passive one.
func partitionsOf(c *cluster.Cluster) []partition {
	switch c.Config.ReplicationMode {
	case api.ActivePassive:
		return []partition{{leaderPartition, c.Leader, c.LeaderEpoch, c.Handovers}}
	case api.Sharded:
		all := make([]partition, max(c.Config.Shards, len(c.Shards)))
		for i := range all {
			all[i].name = strconv.Itoa(i)
		}
		for i, s := range c.Shards { // empty until the first agent joins
			all[i].leader, all[i].epoch, all[i].handovers = s.Owner, s.Epoch, s.Handovers
		}
		return all
	}
	return nil
}

package dashboards

// of selects the clusters that are chosen.
const of = `{cluster_id=~"$cluster"}`

// All are the dashboards by file name.
func All() map[string]*Dashboard {
	return map[string]*Dashboard{"fleet.json": fleet(), "queue.json": queue(), "failover.json": failover(),
		"control-plane.json": controlPlane()}
}

var (
	goodAtZero = []Step{{0, "green"}, {1, "red"}}
	watchful   = []Step{{0, "green"}, {1, "orange"}}
	oneIsGood  = []Step{{0, "red"}, {0.5, "orange"}, {1, "green"}}
	whole      = 1.0
)

// stat is a number with a colour.
func stat(title, about, unit, expr string, steps []Step) Panel {
	return Panel{Kind: "stat", Title: title, About: about, Unit: unit, Width: 4, Height: 4, Steps: steps,
		Queries: []Query{{expr, ""}}}
}

// graph is a graph of half the width.
func graph(title, about, unit string, queries ...Query) Panel {
	return Panel{Kind: "timeseries", Title: title, About: about, Unit: unit, Width: 12, Height: 8, Queries: queries}
}

func fleet() *Dashboard {
	health := graph("Health of agents, worst 20", "0 failed, 1 healthy; by the last five minutes.", "percentunit",
		Query{`bottomk(20, min by (agent_id) (stella_agent_health_score))`, "{{agent_id}}"})
	health.Max = &whole
	return &Dashboard{
		UID:         "mainstay-fleet",
		Title:       "Mainstay / Fleet",
		Description: "Agents and clusters: who is there, and how well they do.",
		Panels: []Panel{
			stat("Live agents", "Connected, in all clusters.", "none", `max(stella_agent_live_agents)`,
				[]Step{{0, "red"}, {1, "green"}}),
			stat("Lost agents", "Lost within a day and not back.", "none",
				`sum(max by (cluster_id) (mainstay_cluster_agents_lost`+of+`))`, goodAtZero),
			stat("Worst cluster", "1 healthy, 0.5 degraded, 0 critical.", "none",
				`min(max by (cluster_id) (stella_agent_cluster_health`+of+`))`, oneIsGood),
			stat("Orphaned partitions", "Shards and leaderships without a holder.", "none",
				`max(stella_agent_orphaned_partitions)`, goodAtZero),
			stat("Brakes engaged", "Failovers are held back: many agents vanished at once.", "none",
				`sum(max by (cluster_id) (mainstay_cluster_brakes_engaged`+of+`))`, goodAtZero),
			stat(
				"Waiting for a person",
				"Dead letters and reviews.",
				"none",
				`sum(max by (cluster_id) (stella_agent_dead_letter_queue_depth`+of+`)) + sum(max by (cluster_id) (mainstay_cluster_reviews_waiting`+of+`))`,
				watchful,
			),
			graph("Agents by status", "", "none",
				Query{`sum by (status) (max by (cluster_id, status) (stella_agent_cluster_members` + of + `))`,
					"{{status}}"}),
			graph("Health of clusters", "1 healthy, 0.5 degraded, 0 critical.", "none",
				Query{`max by (cluster_id) (stella_agent_cluster_health` + of + `)`, "{{cluster_id}}"}),
			health,
			graph("Heartbeat age, oldest 20", "An agent is lost after 15 s of silence.", "s",
				Query{`topk(20, min by (agent_id) (stella_agent_heartbeat_age_seconds))`, "{{agent_id}}"}),
			graph("Task completion, worst 20", "Share of attempts that the agent finished.", "percentunit",
				Query{`bottomk(20, min by (agent_id) (stella_agent_task_completion_rate))`, "{{agent_id}}"}),
			graph("Heartbeats missed", "", "cps",
				Query{`topk(20, sum by (agent_id) (rate(stella_agent_heartbeat_failure_total[5m])) > 0)`,
					"{{agent_id}}"}),
			graph("Heartbeats", "What agents send in all.", "cps",
				Query{`sum(rate(stella_agent_heartbeat_success_total[5m]))`, "came"},
				Query{`sum(rate(stella_agent_heartbeat_failure_total[5m]))`, "missed"}),
			{Kind: "table", Title: "Agents that are down", About: "Suspect or lost.", Unit: "none", Width: 12,
				Height:  8,
				Queries: []Query{{`max by (agent_id) (stella_agent_up) == 0`, ""}}},
			graph("Healing actions", "", "cps",
				Query{`sum by (action_type, status) (rate(stella_agent_healing_actions_total[5m]))`,
					"{{action_type}} {{status}}"}),
			graph(
				"Healing cycle, 95th percentile",
				"",
				"s",
				Query{
					`histogram_quantile(0.95, sum by (le) (rate(stella_agent_healing_cycle_duration_seconds_bucket[15m])))`,
					"95 %",
				},
			),
			graph(
				"Scaling actions",
				"Changes of the number of agents that have ended, in five minutes.",
				"none",
				Query{
					`sum by (change, outcome) (max by (cluster_id, change, outcome) (increase(mainstay_cluster_scaling_actions_total{cluster_id=~"$cluster"}[5m])))`,
					"{{change}} {{outcome}}",
				},
			),
			graph("Scaling blocked", "1 while scaling cannot start wanted agents, or stop surplus ones.", "none",
				Query{`max by (cluster_id, change) (mainstay_cluster_scaling_blocked{cluster_id=~"$cluster"})`,
					"{{cluster_id}} {{change}}"}),
		},
	}
}

func queue() *Dashboard {
	return &Dashboard{
		UID:         "mainstay-queue",
		Title:       "Mainstay / Queue",
		Description: "What waits, for how long, and what comes of it.",
		Panels: []Panel{
			stat("Waiting", "Tasks in lanes.", "none",
				`sum(max by (cluster_id, priority) (stella_agent_queue_depth`+of+`))`, nil),
			stat("Oldest", "How long the oldest waits.", "s",
				`max(max by (cluster_id) (mainstay_cluster_queue_oldest_age_seconds`+of+`))`,
				[]Step{{0, "green"}, {300, "orange"}, {900, "red"}}),
			stat("Running", "Attempts that agents have.", "none", `sum(mainstay_hub_attempts)`, nil),
			stat("Dead letters", "Attempts are used up; retry or discard them.", "none",
				`sum(max by (cluster_id) (stella_agent_dead_letter_queue_depth`+of+`))`, watchful),
			stat("Reviews", "A person must decide.", "none",
				`sum(max by (cluster_id) (mainstay_cluster_reviews_waiting`+of+`))`, watchful),
			stat("Pauses", "Clusters and lanes that take nothing.", "none",
				`sum(max by (cluster_id) (mainstay_cluster_pauses`+of+`))`, watchful),
			graph("Waiting by cluster", "", "none",
				Query{`sum by (cluster_id) (max by (cluster_id, priority) (stella_agent_queue_depth` + of + `))`,
					"{{cluster_id}}"}),
			graph("Waiting by priority", "", "none",
				Query{`sum by (priority) (max by (cluster_id, priority) (stella_agent_queue_depth` + of + `))`,
					"{{priority}}"}),
			graph("Age of the oldest", "", "s",
				Query{`max by (cluster_id) (mainstay_cluster_queue_oldest_age_seconds` + of + `)`, "{{cluster_id}}"}),
			graph(
				"Wait until an agent had it",
				"From the lane to acceptance.",
				"s",
				Query{
					`histogram_quantile(0.5, sum by (le) (rate(stella_agent_queue_latency_seconds_bucket` + of + `[5m])))`,
					"50 %",
				},
				Query{
					`histogram_quantile(0.99, sum by (le) (rate(stella_agent_queue_latency_seconds_bucket` + of + `[5m])))`,
					"99 %",
				},
			),
			graph("Submitted", "", "cps", Query{`sum by (outcome) (rate(mainstay_gateway_tasks_submitted_total[5m]))`,
				"{{outcome}}"}),
			graph("Results", "", "cps", Query{`sum by (outcome) (rate(mainstay_hub_results_total[5m]))`,
				"{{outcome}}"}),
			graph("Deliveries that brought nothing", "", "cps",
				Query{`sum(rate(mainstay_hub_attempts_returned_total[5m]))`, "given back"},
				Query{`sum(rate(mainstay_hub_attempts_not_received_total[5m]))`, "not received"},
				Query{`sum(rate(mainstay_hub_attempts_lost_total[5m]))`, "lost with their agents"},
				Query{`sum by (evidence) (rate(mainstay_hub_agents_given_up_total[5m]))`, "agents given up: {{evidence}}"},
				Query{`sum(rate(mainstay_hub_agents_given_up_wrongly_total[5m]))`, "agents given up wrongly"},
				Query{`sum(rate(mainstay_hub_stale_results_total[5m]))`, "results too late"},
				Query{`sum(rate(mainstay_hub_beacons_missed_total[5m]))`, "no sign of life"}),
			graph("Hubs at their limit", "", "none", Query{`sum(rate(mainstay_hub_tasks_parked_total[5m]))`,
				"parked per second"},
				Query{`sum(mainstay_hub_stuck_handlers)`, "slots held by stuck handlers"},
				Query{`sum(mainstay_hub_lane_polls)`, "open lane polls"}),
		},
	}
}

func failover() *Dashboard {
	return &Dashboard{
		UID:         "mainstay-failover",
		Title:       "Mainstay / Failover and leadership",
		Description: "What was lost, how soon it ran elsewhere, and who leads.",
		Panels: []Panel{
			stat(
				"Within 5 s, 30 days",
				"Objective: 99 % of the lost attempts run elsewhere within 5 s.",
				"percentunit",
				`sum(rate(mainstay_hub_failover_seconds_bucket{cluster_id=~"$cluster",le="5"}[30d])) / sum(rate(mainstay_hub_failover_seconds_count`+of+`[30d]))`,
				[]Step{{0, "red"}, {0.95, "orange"}, {0.99, "green"}},
			),
			stat("Failovers, 24 h", "", "none", `sum(increase(stella_agent_failovers_total`+of+`[24h]))`, nil),
			stat("Not succeeded, 24 h", "", "none",
				`sum(increase(stella_agent_failovers_total{cluster_id=~"$cluster",status!="succeeded"}[24h]))`,
				goodAtZero),
			stat("Tasks moved, 24 h", "", "none", `sum(increase(stella_agent_tasks_transferred_total`+of+`[24h]))`,
				nil),
			stat("Orphaned partitions", "", "none", `max(stella_agent_orphaned_partitions)`, goodAtZero),
			stat("Partitions", "", "none", `max(stella_agent_total_partitions)`, nil),
			graph(
				"From noticing to running elsewhere",
				"",
				"s",
				Query{
					`histogram_quantile(0.5, sum by (le) (rate(mainstay_hub_failover_seconds_bucket` + of + `[15m])))`,
					"50 %",
				},
				Query{
					`histogram_quantile(0.99, sum by (le) (rate(mainstay_hub_failover_seconds_bucket` + of + `[15m])))`,
					"99 %",
				},
			),
			graph(
				"From noticing until all work and roles are with others",
				"",
				"s",
				Query{
					`histogram_quantile(0.95, sum by (le, cluster_id) (rate(stella_agent_failover_duration_seconds_bucket` + of + `[15m])))`,
					"{{cluster_id}} 95 %",
				},
			),
			graph("Failovers", "", "cps",
				Query{`sum by (cluster_id, status) (rate(stella_agent_failovers_total` + of + `[15m]))`,
					"{{cluster_id}} {{status}}"}),
			graph("Sessions that ended", "left: said goodbye; fenced: a newer process took the id.", "cps",
				Query{`sum by (kind) (rate(mainstay_hub_sessions_ended_total[5m]))`, "{{kind}}"}),
			{Kind: "table", Title: "Leaders", About: "Of active_passive clusters.", Unit: "none", Width: 12, Height: 8,
				Queries: []Query{{`max by (cluster_id, agent_id) (stella_agent_cluster_leader` + of + `)`, ""}}},
			{Kind: "table", Title: "Owners of partitions",
				About: "Shards by number; leader: an active_passive cluster.", Unit: "none", Width: 12, Height: 8,
				Queries: []Query{
					{`max by (cluster_id, partition, agent_id) (stella_agent_partition_leader_agent_id` + of + `)`, ""},
				}},
			graph(
				"Handovers of partitions",
				"",
				"none",
				Query{
					`sum by (cluster_id) (max by (cluster_id, partition) (increase(stella_agent_partition_failover_count` + of + `[15m])))`,
					"{{cluster_id}}",
				},
			),
			graph("Partitions by agent", "", "none", Query{`topk(20, max by (agent_id) (stella_agent_lease_count))`,
				"{{agent_id}}"}),
			graph("Newest epoch", "It only grows, by one for each session and each role that is given.", "none",
				Query{`max by (cluster_id) (stella_agent_partition_lease_epoch` + of + `)`, "{{cluster_id}}"}),
		},
	}
}

func controlPlane() *Dashboard {
	return &Dashboard{
		UID:         "mainstay-control-plane",
		Title:       "Mainstay / Control plane",
		Description: "Gateways, hubs, workers, and Temporal as they see it.",
		Panels: []Panel{
			stat("Processes up", "", "none", `sum(up{job="mainstay"})`, []Step{{0, "red"}, {1, "green"}}),
			stat("Temporal", "1: all processes reach it.", "none", `min(mainstay_temporal_up)`, oneIsGood),
			stat("Hub lease", "Oldest renewal; 10 s and the hub may be given up.", "s",
				`max(mainstay_hub_lease_age_seconds)`, []Step{{0, "green"}, {5, "orange"}, {10, "red"}}),
			stat("Hubs lost, 24 h", "", "none", `sum(increase(mainstay_worker_hubs_lost_total[24h]))`, goodAtZero),
			stat(
				"Server errors",
				"Share of requests answered 5xx.",
				"percentunit",
				`sum(rate(mainstay_http_request_duration_seconds_count{status=~"5.."}[5m])) / sum(rate(mainstay_http_request_duration_seconds_count[5m]))`,
				[]Step{{0, "green"}, {0.01, "orange"}, {0.05, "red"}},
			),
			stat("Clusters not read", "They did not answer the gateway.", "none",
				`max(mainstay_gateway_fleet_unread_clusters)`, goodAtZero),
			graph("Requests", "", "reqps",
				Query{`sum by (route) (rate(mainstay_http_request_duration_seconds_count[5m]))`, "{{route}}"}),
			graph(
				"Submitting a task",
				"",
				"s",
				Query{
					`histogram_quantile(0.5, sum by (le) (rate(mainstay_http_request_duration_seconds_bucket{route="/api/v1/agents/tasks",method="POST"}[5m])))`,
					"50 %",
				},
				Query{
					`histogram_quantile(0.99, sum by (le) (rate(mainstay_http_request_duration_seconds_bucket{route="/api/v1/agents/tasks",method="POST"}[5m])))`,
					"99 %",
				},
			),
			graph("Agents by hub", "", "none", Query{`sum by (instance) (mainstay_hub_sessions)`, "{{instance}}"}),
			graph("Sessions opened, attempts taken over",
				"After a hub restarts, its agents open sessions and bring what they run.", "cps",
				Query{`sum(rate(mainstay_hub_sessions_opened_total[5m]))`, "sessions"},
				Query{`sum(rate(mainstay_hub_attempts_reattached_total[5m]))`, "attempts"}),
			graph(
				"Calls of Temporal, 99th percentile",
				"",
				"s",
				Query{
					`topk(10, histogram_quantile(0.99, sum by (le, operation) (rate(temporal_request_latency_seconds_bucket[5m]))))`,
					"{{operation}}",
				},
			),
			graph("Failed calls of Temporal", "", "cps",
				Query{`sum by (operation) (rate(temporal_request_failure_total[5m]))`, "{{operation}}"}),
			graph(
				"Wait of workflows for a worker, 99th percentile",
				"More than a second: add workers.",
				"s",
				Query{
					`histogram_quantile(0.99, sum by (le, workflow_type) (rate(temporal_workflow_task_schedule_to_start_latency_seconds_bucket[5m])))`,
					"{{workflow_type}}",
				},
			),
			graph(
				"Wait of activities, 99th percentile",
				"",
				"s",
				Query{
					`histogram_quantile(0.99, sum by (le, activity_type) (rate(temporal_activity_schedule_to_start_latency_seconds_bucket[5m])))`,
					"{{activity_type}}",
				},
			),
			graph("Workflow tasks that failed", "", "cps",
				Query{`sum by (workflow_type) (rate(temporal_workflow_task_execution_failed_total[5m]))`,
					"{{workflow_type}}"}),
			graph("Workflows in memory, free slots", "", "none", Query{`sum(temporal_sticky_cache_size)`, "workflows"},
				Query{`sum by (worker_type) (temporal_worker_task_slots_available)`, "{{worker_type}} free"}),
			graph("Readings of the fleet", "What the gateways' metrics come from.", "cps",
				Query{`sum by (outcome) (rate(mainstay_gateway_fleet_reads_total[5m]))`, "{{outcome}}"}),
			graph("Memory", "", "bytes", Query{`process_resident_memory_bytes{job="mainstay"}`, "{{instance}}"}),
			graph("CPU", "", "percentunit", Query{`rate(process_cpu_seconds_total{job="mainstay"}[5m])`,
				"{{instance}}"}),
			graph("Goroutines", "", "none", Query{`go_goroutines{job="mainstay"}`, "{{instance}}"}),
			{Kind: "table", Title: "Versions", Unit: "none", Width: 12, Height: 6,
				Queries: []Query{{`sum by (version, go_version) (mainstay_build_info)`, ""}}},
		},
	}
}

package cli

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/cli/clitest"
)

func TestAgentsAndClusters(t *testing.T) {
	t.Parallel()
	agent := `{"id":"agent-1","cluster":"default","status":"online","role":"member","epoch":4,"instance_id":"i","host":"h","pid":12,"max_tasks":4,"running":1,
		"last_heartbeat":"2026-11-21T11:59:59.5Z","cpu_percent":12.4,"capabilities":["gpu"],"task_types":["exec"]}`
	gone := `{"id":"agent-2","cluster":"default","status":"offline","role":"member","epoch":1,"instance_id":"j","max_tasks":4,"status_since":"2026-11-21T10:00:00Z","status_reason":"its connection closed"}`
	cluster := `{"name":"default","status":"healthy","replication_mode":"active_active","selection_strategy":"least_loaded","min_agents":1,"desired_agents":2,"max_agents":9,"healthy_agent_count":1,"agent_count":2,"role_lease":"5s","task_transfer_timeout":"5m0s","dead_letter_retention":"168h0m0s","brake":{"share":0.5,"min_lost":3,"window":"10s"},"created_at":"2026-11-11T12:00:00Z"}`
	f := clitest.NewAPI(t, map[string]clitest.Answer{
		"GET /api/v1/agents":                  {Status: 200, Body: `{"agents":[` + agent + `,` + gone + `]}`},
		"GET /api/v1/agents/agent-2":          {Status: 200, Body: gone},
		"GET /api/v1/agents/clusters":         {Status: 200, Body: `{"clusters":[` + cluster + `]}`},
		"GET /api/v1/agents/clusters/default": {Status: 200, Body: cluster},
		"GET /api/v1/agents/spawners": {Status: 200, Body: `{"spawners":[
			{"name":"dock","last_seen":"2026-11-21T11:59:59Z","platform":"docker","health":"healthy","agents":2,"max_agents":5,"cpus":8,"memory_bytes":1073741824,"ended":[]},
			{"name":"gone","last_seen":"2026-11-21T11:59:00Z","health":"unknown","problem":"it does not answer","agents":0,"ended":[]}]}`},
		"GET /api/v1/agents/clusters/default/members": {Status: 200, Body: `{"members":[` + agent + `]}`},
		"POST /api/v1/agents/clusters":                {Status: 201, Body: cluster},
		"DELETE /api/v1/agents/clusters/default":      {Status: 204, Body: ""},
	})
	rows := `
AGENT    CLUSTER  STATUS   HEALTH  ROLE    TASKS  EPOCH  CPU  HOST  PID  LAST HEARTBEAT
agent-1  default  online   -       member  1/4    4      12%  h     12   500ms ago
agent-2  default  offline  -       member  ?/4    1      -    -     -
`
	for _, c := range []struct {
		args  string
		wants string
	}{
		{"agent list", rows},
		{"agent get agent-2", `
Agent     agent-2
Cluster   default
Status    offline, since 2h ago
Reason    its connection closed
Role      member
Epoch     1
Instance  j
Tasks     ?/4
`},
		{"spawner list", `
SPAWNER  PLATFORM  HEALTH   AGENTS  CORES  MEMORY    LAST SEEN  PROBLEM
dock     docker    healthy  2/5     8      1024 MiB  1.0s ago
gone     -         unknown  -       -      -         60s ago    it does not answer
`},
		{"cluster list", `
CLUSTER  STATUS   MODE           HEALTHY  AGENTS  LEADER  CREATED  PAUSED
default  healthy  active_active  1        2       -       10d ago
`},
		{"cluster get default", `
Cluster           default
Status            healthy
Agents            1 healthy of 2 (min 1, desired 2, max 9)
Mode              active_active
Selection         least_loaded
Role lease        5s
Transfer timeout  5m0s
Dead letters      kept for 7d
Brake             when at least 3 and more than 50% of the agents vanish within 10s
Created           10d ago
`},
		{"cluster members default", `
AGENT    CLUSTER  STATUS  HEALTH  ROLE    TASKS  EPOCH  CPU  HOST  PID  LAST HEARTBEAT
agent-1  default  online  -       member  1/4    4      12%  h     12   500ms ago
`},
		{"cluster create default --min-agents 1",
			"\nCluster default is there. Agents join it with: mainstay agent run --cluster default\n"},
		{"cluster delete default --force", "\nCluster default is deleted.\n"},
		{"cluster delete default -o json", "\n{\n  \"deleted\": \"default\"\n}\n"},
	} {
		got := f.At(t, strings.Fields(c.args)...)
		require.Equal(t, app.ExitOK, got.Code, "%s: %s", c.args, got.Stderr)
		require.Equal(t, c.wants[1:], got.Stdout, c.args)
	}
	require.Equal(t, "/api/v1/agents/clusters/default?force=true", f.Requests[7].URI)
}

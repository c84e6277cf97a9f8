package cluster

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/cli/clitest"
)

func TestMain(m *testing.M) { clitest.Main(m, clitest.Root(Command, QueueCommand, ScalingCommand)) }

func TestQueueCommand(t *testing.T) {
	t.Parallel()
	lanes := `{"lanes":[
{"cluster":"default","lane":"default","task_queue":"lane/default","depth":7,"oldest_age":"1m30s","add_rate":1.5,"dispatch_rate":0.25,"agents":2,"slots":8,"busy_slots":8,
"priorities":[{"priority":1,"name":"critical","depth":2,"add_rate":0,"dispatch_rate":0},{"priority":3,"name":"normal","depth":5,"add_rate":0,"dispatch_rate":0},{"priority":4,"name":"low","depth":0,"add_rate":0,"dispatch_rate":0}]},
{"cluster":"default","lane":"cap/gpu","task_queue":"lane/default/cap/gpu","depth":0,"add_rate":0,"dispatch_rate":0,"agents":1,"slots":4,"priorities":[],"paused":{"since":"2026-11-21T11:58:00Z","reason":"driver"}}]}`
	f := clitest.NewAPI(t, map[string]clitest.Answer{"GET /api/v1/agents/queue": {Status: 200, Body: lanes},
		"GET /api/v1/agents/clusters/default/queue": {Status: 200, Body: lanes}})
	const want = `
CLUSTER  LANE     WAITING  OLDEST  IN/S  OUT/S  AGENTS  SLOTS BUSY  BY PRIORITY                  PAUSED
default  default  7        90s     1.5   0.25   2       8 of 8      critical (1): 2, normal (3): 5
default  cap/gpu  0        -       0     0      1       ? of 4      -                            since 2m ago: driver
`
	for _, args := range []string{"queue", "queue default"} {
		got := f.At(t, strings.Fields(args)...)
		require.Equal(t, app.ExitOK, got.Code, got.Stderr)
		require.Equal(t, strings.Join(strings.Fields(want), " "), strings.Join(strings.Fields(got.Stdout), " "))
	}
	got := f.At(t, "queue", "a", "b")
	require.Equal(t, app.ExitUsage, got.Code)
	require.Contains(t, got.Stderr, "at most a cluster's name")
}

func TestPauseCommands(t *testing.T) {
	t.Parallel()
	const path = "POST /api/v1/agents/clusters/default/"
	for name, c := range map[string]struct {
		args, answer, body, wants string
	}{
		"cluster": {"pause default --reason disks",
			`{"name":"default","paused":{"since":"2026-11-21T11:58:00Z"}}`, `{"reason":"disks"}`,
			"Cluster default is paused."},
		"lane": {"pause default --lane cap/gpu+arm", `{"name":"default"}`, `{"lane":"cap/arm+gpu"}`,
			"mainstay cluster resume default --lane cap/arm+gpu"},
		"resume": {"resume default",
			`{"name":"default","paused_lanes":[{"lane":"shard/2","since":"2026-11-21T11:58:00Z"}]}`, `{}`,
			"Lane shard/2 was paused by itself and stays so."},
		"resume lane": {"resume default --lane agent/a-1", `{"name":"default"}`, `{"lane":"agent/a-1"}`,
			"Lane agent/a-1 of cluster default goes on."},
		"lane of a paused one": {"resume default --lane default",
			`{"name":"default","paused":{"since":"2026-11-21T11:58:00Z"}}`, `{"lane":"default"}`,
			"but all of cluster default is"},
		"as data for a program": {"pause default -o json", `{"name":"default"}`, `{}`, `"name": "default"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			word, _, _ := strings.Cut(c.args, " ")
			f := clitest.NewAPI(t, map[string]clitest.Answer{path + word: {Status: 200, Body: c.answer}})
			got := f.At(t, append([]string{"cluster"}, strings.Fields(c.args)...)...)
			require.Equal(t, app.ExitOK, got.Code, got.Stderr)
			require.Contains(t, got.Stdout, c.wants)
			require.JSONEq(t, c.body, f.Requests[0].Body)
		})
	}
	got := clitest.NewAPI(t, nil).At(t, "cluster", "pause", "default", "--lane", "gpu")
	require.Equal(t, app.ExitUsage, got.Code)
	require.Contains(t, got.Stderr, "cap/<capability>")
}

func TestClusterSettingsFlags(t *testing.T) {
	t.Parallel()
	cluster := `{"name":"c","status":"healthy","replication_mode":"sharded","selection_strategy":"affinity","shards":4,"role_lease":"8s","task_transfer_timeout":"1m0s","dead_letter_retention":"24h0m0s",
"brake":{"share":1,"min_lost":3,"window":"10s"},"tenant_weights":{"b":0.5,"acme":5},"min_agents":0,"desired_agents":0,"max_agents":9,"healthy_agent_count":1,"agent_count":1,
"shard_owners":[{"shard":0,"owner":"a-1"},{"shard":1,"owner":"a-1"},{"shard":2},{"shard":3,"owner":"a-1"}],
"paused_lanes":[{"lane":"shard/3","since":"2026-11-21T11:58:00Z","reason":"why"}],"brake_holds":[{"hub":"h-1","since":"2026-11-21T11:58:00Z","lost":4}]}`
	f := clitest.NewAPI(t, map[string]clitest.Answer{
		"POST /api/v1/agents/clusters":    {Status: 201, Body: cluster},
		"PATCH /api/v1/agents/clusters/c": {Status: 200, Body: cluster},
		"GET /api/v1/agents/clusters/c":   {Status: 200, Body: cluster},
	})
	settings := strings.Fields(
		"--role-lease 8s --task-transfer-timeout 1m --dead-letter-retention 24h --brake-share 1 --brake-min-lost 3 --brake-window 10s --tenant-weight acme=5 --tenant-weight b=0.5")
	const body = `"role_lease":"8s","task_transfer_timeout":"1m0s","dead_letter_retention":"24h0m0s","brake":{"share":1,"min_lost":3,"window":"10s"},"tenant_weights":{"acme":5,"b":0.5}`
	got := f.At(t, append([]string{"cluster", "create", "c"}, settings...)...)
	require.Equal(t, app.ExitOK, got.Code, got.Stderr)
	require.JSONEq(t, `{"name":"c",`+body+`}`, f.Requests[0].Body)
	got = f.At(t, append([]string{"cluster", "update", "c"}, settings...)...)
	require.Equal(t, app.ExitOK, got.Code, got.Stderr)
	require.JSONEq(t, `{`+body+`}`, f.Requests[1].Body)
	got = f.At(t, "cluster", "update", "c", "--min-agents", "0", "--target-group", "", "--tenant-weight", "acme=0")
	require.Equal(t, app.ExitOK, got.Code, got.Stderr)
	require.JSONEq(t, `{"min_agents":0,"target_group":"","tenant_weights":{"acme":0}}`, f.Requests[2].Body,
		"only what was given")

	got = f.At(t, "cluster", "get", "c")
	require.Equal(t, strings.TrimLeft(`
Cluster           c
Status            healthy
Paused lane       shard/3 since 2m ago: why
Brake holds       since 2m ago at hub h-1: 4 agents lost; their failovers wait until they are back, or: mainstay cluster release-brake c
Agents            1 healthy of 1 (min 0, desired 0, max 9)
Mode              sharded
Shards            4: a-1 owns 0-1, 3; nobody owns 2
Selection         affinity
Role lease        8s
Transfer timeout  1m0s
Dead letters      kept for 24h
Brake             off
Tenant weights    acme=5, b=0.5
`, "\n"), got.Stdout)

	for _, args := range []string{"create c --tenant-weight acme", "create c --tenant-weight acme=500",
		"create c --tenant-weight A=1", "update c", "update c --tenant-weight =1", "create c --role-lease 1ms"} {
		got := f.At(t, append([]string{"cluster"}, strings.Fields(args)...)...)
		require.Equal(t, app.ExitUsage, got.Code, args)
	}
}

func TestReleaseBrake(t *testing.T) {
	t.Parallel()
	url, body := clitest.Answering(t, 200, "application/json", `{"released":true}`)
	got := clitest.Run(t.Context(), "", "cluster", "release-brake", "default", "--reason", "no power", "--server", url)
	require.Equal(t, app.ExitOK, got.Code, got.Stderr)
	require.Contains(t, got.Stdout, "default is released")
	require.JSONEq(t, `{"reason":"no power"}`, body.String())
	require.JSONEq(t, `{"released":true}`, clitest.Run(t.Context(), "", "cluster", "release-brake", "default", "-o",
		"json", "--server", url).Stdout)
	url, _ = clitest.Answering(t, 200, "application/json", `{"released":false}`)
	require.Contains(t, clitest.Run(t.Context(), "", "cluster", "release-brake", "default", "--server", url).Stdout,
		"nothing to release")
}

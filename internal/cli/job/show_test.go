package job

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/cli/clitest"
)

func TestMain(m *testing.M) { clitest.Main(m, clitest.Root(Command)) }

const jobsPath = "/api/v1/agents/jobs"

func TestJobGetSaysWhyInstancesDoNotRun(t *testing.T) {
	t.Parallel()
	f := clitest.NewAPI(t, map[string]clitest.Answer{
		"GET " + jobsPath + "/web": {Status: http.StatusOK, Body: `{"name":"web","type":"service","version":2,"cluster":"c",
			"versions":[],"created_at":"2026-11-21T11:00:00Z","definition":{"job":"web","cluster":"c","instances":{"task":{"type":"x"}}}}`},
		"GET " + jobsPath + "/web/instances": {Status: http.StatusOK, Body: `{"wanted":2,
			"deployment":{"version":2,"status":"failed","reason":"it crashes","counts":[],"started_at":"2026-11-21T11:00:00Z","progress_at":"2026-11-21T11:00:00Z"},
			"instances":[{"name":"0","task_id":"web~~0.k1","version":1,"since":"2026-11-21T11:58:00Z","status":"retry_wait","agent":"a-1",
				"attempts":4,"why":"goes to another agent: exit 3","next_at":"2026-11-21T12:01:30Z","recovery_status":"rescheduling",
				"policy_state":{"active_restarts":3,"active_reschedules":1}},
			{"name":"1","task_id":"web~~1.k2","version":1,"since":"2026-11-21T11:58:00Z","status":"blocked","agent":"a-2","attempts":1,
				"why":"a person decides","recovery_status":"review"}]}`},
	})
	ran := f.At(t, "job", "get", "web")
	require.Equal(t, app.ExitOK, ran.Code, ran.Stderr)
	for _, line := range []string{
		"goes to another agent: exit 3; so far 3 restarts, 1 move; next try in 90s\n",
		"\nDecide about instance 1:  mainstay task review web~~1.k2 --decision rerun|completed|failed\n",
		"\nDeployment  of version 2: failed: it crashes; see mainstay job deployment web\n",
	} {
		require.Contains(t, ran.Stdout, line)
	}
}

func TestJobListShowsTrouble(t *testing.T) {
	t.Parallel()
	f := clitest.NewAPI(t, map[string]clitest.Answer{"GET " + jobsPath: {Status: http.StatusOK, Body: `{"jobs":[
		{"name":"web","type":"service","cluster":"c","version":2,"count":2,"deployment":"failed","trouble":{"healthy":1,"wanted":2,
			"why":"instance 1 is failing","failed":{"version":2,"status":"failed","reason":"it crashes","counts":[],
			"started_at":"2026-11-21T11:00:00Z","progress_at":"2026-11-21T11:00:00Z"}}}]}`}})
	ran := f.At(t, "job", "list", "--troubled")
	require.Equal(t, app.ExitOK, ran.Code, ran.Stderr)
	require.Equal(t, strings.TrimLeft(`
JOB  CLUSTER  HEALTHY  STATE              WHY
web  c        1 of 2   deployment failed  instance 1 is failing; version 2 could not be deployed: it crashes
`, "\n"), ran.Stdout)
	require.Contains(t, f.Requests[0].URI, "troubled=true")
	require.Contains(t, f.At(t, "job", "list").Stdout, "2 instances")
}

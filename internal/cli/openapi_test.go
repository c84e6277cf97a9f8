package cli

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/cli/clitest"
)

// committedDocument is what `make openapi` writes.
const committedDocument = "../../docs/openapi.json"

func TestOpenAPIIsCommitted(t *testing.T) {
	t.Parallel()
	committed, err := os.ReadFile(committedDocument)
	require.NoError(t, err)
	printed := clitest.Run(t.Context(), "", "openapi")
	require.Equal(t, app.ExitOK, printed.Code, printed.Stderr)
	if string(committed) != printed.Stdout {
		t.Fatal("docs/openapi.json is not that of this code: run `make openapi`, and commit what it writes")
	}
	require.Contains(t, printed.Stdout, `"openapi": "3.1.0"`)
}

// commandLines has a command line for each operation, and every operation must have one: a new endpoint without a
// command fails here. The commands run against a server that notes what they ask.
const commandLines = `
get-cluster-load: cluster load default
declare-agent-dead: agent dead x --proof why
submit-task: task submit --type t
submit-tasks: task submit-batch TASKS
get-task: task get x
list-tasks: task list
list-queue: task queue
list-dead-letters: task dead-letters
count-dead-letters: task dead-letters --count
read-task-log: task logs x
search: search x
retry-task: task retry x
rerun-task: task rerun x
cancel-task: task cancel x
discard-task: task discard x --reason why
review-task: task review x --decision rerun
set-task-priority: task priority x high
bulk-tasks: task bulk cancel --all --yes --reason why
list-bulks: task bulk list
get-bulk: task bulk get x
cancel-bulk: task bulk stop x
create-schedule: schedule create x --every 1m --type t
list-schedules: schedule list
get-schedule: schedule get x
replace-schedule: schedule replace x --every 1m --type t
delete-schedule: schedule delete x
pause-schedule: schedule pause x
resume-schedule: schedule resume x
trigger-schedule: schedule trigger x
create-token: token create x --role viewer
list-tokens: token list
revoke-token: token revoke x --end-sessions
get-session: token whoami
create-cluster: cluster create x
list-clusters: cluster list
get-cluster: cluster get x
replace-cluster: cluster apply CONFIG
update-cluster: cluster update x --min-agents 1
delete-cluster: cluster delete x
list-members: cluster members x
get-cluster-health: cluster health x
get-cluster-queue: queue x
get-queue: queue
get-overview: overview
watch-events: events
pause-cluster: cluster pause x
resume-cluster: cluster resume x
release-brake: cluster release-brake x
rebalance-cluster: cluster rebalance x
list-targets: cluster targets x
change-targets: cluster targets x --add y
sync-cluster: cluster sync x
get-cluster-sync: cluster sync x --check
reduce-load: agent reduce-load x
restore-load: agent restore-load x
list-agents: agent list
get-agent: agent get x
get-agent-health: agent health x
set-maintenance: agent maintenance x on
spawn-agent: cluster spawn default
terminate-agent: agent terminate x
drain-agent: agent drain x
forget-agent: agent forget x
drain-agents: agent drain x y
list-drains: drain list
get-drain: drain get x
cancel-drain: drain cancel x
failover-agent: agent failover x
get-healing: healing status
list-healing-actions: healing actions
trigger-healing: healing trigger
pause-healing: healing pause
resume-healing: healing resume
apply-job: job apply JOB
plan-job: job plan JOB
list-jobs: job list
get-job: job get x
list-job-versions: job versions x
dispatch-job: job dispatch x -i a=1
pause-job: job pause x
resume-job: job resume x
revert-job: job revert x 1
delete-job: job delete x
stop-job: job stop x
scale-job: job scale x 2
restart-job-instance: job restart x 0
promote-job: job promote x
fail-job-deployment: job fail x
submit-array: array submit --type t --count 3
list-arrays: array list
get-array: array get x
list-elements: array elements x
stream-results: array results x
pause-array: array pause x
resume-array: array resume x
cancel-array: array cancel x
retry-array: array retry x
set-array-priority: array priority x high
send-event: event send EVENT
list-inbound: inbound list
get-inbound: inbound get x
list-quarantine: quarantine list
get-quarantined: quarantine get x
replay-event: quarantine replay x
discard-event: quarantine discard x --reason why
list-services: service list
get-service: service get x
list-runs: run list
get-run: run get x
pause-run: run pause x
resume-run: run resume x
cancel-run: run cancel x
retry-run: run retry x
retry-step: run step retry x s
skip-step: run step skip x s
complete-step: run step complete x s
fail-step: run step fail x s
approve-step: run step approve x s
reject-step: run step reject x s
list-failovers: failover list
get-failover: failover get x
get-scaling: cluster scaling x
scale-cluster: cluster scale x --to 3
promote-rollout: scaling rollout promote x
revert-rollout: scaling rollout revert x --reason why
list-scalings: scaling list
list-spawners: spawner list
get-scaling-action: scaling get x:1
health: status
watch-events: events
`

// commandless are the operations that no person calls, and why.
var commandless = map[string]string{
	"list-results":       "`mainstay array results` reads the stream, which has the same",
	"list-job-instances": "`mainstay job get` shows them",
	"get-overview":       "the fleet page reads it; `mainstay status` and the lists say the same",
	"list-schemas":       "for editors; `mainstay job schema` prints the one of jobs without a server",
	"get-schema":         "for editors",
	"healthz":            "for probes; `mainstay status` shows more",
	"readyz":             "for probes; `mainstay status` shows more",
	"register-agent":     "of the agent protocol: `mainstay agent run` speaks it",
	"poll-agent":         "of the agent protocol",
	"report-result":      "of the agent protocol",
	"send-log":           "of the agent protocol",
	"send-state":         "of the agent protocol",
	"sign-in":            "for browsers; commands send a token",
	"sign-out":           "for browsers",
	"resume-session":     "of the agent protocol",
	"end-session":        "of the agent protocol",
}

func TestEveryOperationHasACommand(t *testing.T) {
	t.Parallel()
	printed := clitest.Run(t.Context(), "", "openapi")
	require.Equal(t, app.ExitOK, printed.Code, printed.Stderr)
	var document struct {
		Paths map[string]map[string]struct {
			OperationID string `json:"operationId"`
		}
	}
	require.NoError(t, json.Unmarshal([]byte(printed.Stdout), &document))
	dir := t.TempDir()
	tasks, settings := filepath.Join(dir, "tasks"), filepath.Join(dir, "config.yaml")
	require.NoError(t, os.WriteFile(tasks, []byte(`{"type":"t","cluster":"c"} {"type":"t","cluster":"c"}`), 0o600))
	require.NoError(t, os.WriteFile(settings, []byte("clusters: [{name: x, membership: {minimum_agents: 2}}]"), 0o600))
	job := filepath.Join(dir, "job.yaml")
	require.NoError(t, os.WriteFile(job, []byte("{job: x, cluster: c, steps: {a: {task: {type: t}}}}"), 0o600))
	event := filepath.Join(dir, "event.json")
	require.NoError(t, os.WriteFile(event, []byte(`{"specversion":"1.0"}`), 0o600))
	seen, commandOf := map[string]bool{}, map[string]string{}
	for line := range strings.Lines(strings.TrimSpace(commandLines)) {
		id, command, _ := strings.Cut(strings.TrimSpace(line), ": ")
		commandOf[id] = command
	}
	for path, methods := range document.Paths {
		for method, operation := range methods {
			id := operation.OperationID
			seen[id] = true
			line, known := commandOf[id]
			if !known {
				require.Contains(t, commandless, id, "%s %s has no command: write one, and name it in commandLines",
					method, path)
				continue
			}
			t.Run(id, func(t *testing.T) {
				t.Parallel()
				args := strings.Fields(strings.NewReplacer("TASKS", tasks, "CONFIG", settings, "JOB", job, "EVENT", event).Replace(line))
				wanted := regexp.MustCompile("^" + strings.ToUpper(method) +
					" " + regexp.MustCompile(`\{[a-z_]+\}`).ReplaceAllString(path, "[^/]+") + "$")
				require.True(t, asks(t, args, wanted), "%q does not ask %s %s", line, method, path)
			})
		}
	}
	for id := range commandOf {
		require.True(t, seen[id], "there is no operation %s any more", id)
	}
	for id := range commandless {
		require.True(t, seen[id], "there is no operation %s any more", id)
	}
}

// asks runs a command and reports whether it made a request of this kind, with the token that it was given. The server
// answers nothing of use.
func asks(t *testing.T, args []string, wanted *regexp.Regexp) bool {
	t.Helper()
	var mu sync.Mutex
	found := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		found = found || wanted.MatchString(r.Method+" "+r.URL.Path) &&
			r.Header.Get("Authorization") == "Bearer mst_test"
		_, _ = w.Write([]byte(`{"status":"completed","id":"x","cluster":"c"}`))
	}))
	t.Cleanup(server.Close)
	ran := clitest.Run(t.Context(), "", append(args, "--server", server.URL, "--token", "mst_test", "-o", "json")...)
	mu.Lock()
	defer mu.Unlock()
	if !found {
		t.Logf("%v\n%s%s", args, ran.Stdout, ran.Stderr)
	}
	return found
}

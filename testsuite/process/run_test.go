package process

import (
	"encoding/json"
	"flag"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/flow"
	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/mainstay/testsuite/slow"
	"mainstay.dev/sdk/api"
)

// Each step of the diamond notes its begin-and its end in the ledger, outside the system. b and c end when they may.
const diamondOfCommands = `
job: diamond
cluster: default
safety: idempotent
steps:
  a:
    task: {type: exec, payload: {command: [sh, -c, 'echo begin-a >> "$0/ledger"; echo end-a >> "$0/ledger"; echo of-a', "${inputs.dir}"]}}
    output: {text: result.stdout.trim()}
  b:
    after: [a]
    task: {type: exec, payload: {command: [sh, -c, 'echo begin-b >> "$0/ledger"; until [ -e "$0/go" ]; do sleep 0.05; done; echo end-b >> "$0/ledger"; echo "$1-b"', "${inputs.dir}", "${steps.a.output.text}"]}}
    output: {text: result.stdout.trim()}
  c:
    after: [a]
    task: {type: exec, payload: {command: [sh, -c, 'echo begin-c >> "$0/ledger"; until [ -e "$0/go" ]; do sleep 0.05; done; echo end-c >> "$0/ledger"; echo "$1-c"', "${inputs.dir}", "${steps.a.output.text}"]}}
    output: {text: result.stdout.trim()}
  d:
    after: [b, c]
    task: {type: exec, payload: {command: [sh, -c, 'echo begin-d >> "$0/ledger"; echo end-d >> "$0/ledger"; echo "$1 $2"', "${inputs.dir}", "${steps.b.output.text}", "${steps.c.output.text}"]}}
    output: {text: result.stdout.trim()}
`

// deaths is for a proof by many: go test ./testsuite/process -run DeathOfAll -parallel 4 -args -deaths=20.
var deaths = flag.Int("deaths", 1, "how many runs TestRunSurvivesTheDeathOfAll kills everything under")

// TestRunSurvivesTheDeathOfAll kills Temporal, control plane and agents in the middle of a run. What had ended does not
// begin again, and the run ends as if nothing had happened.
func TestRunSurvivesTheDeathOfAll(t *testing.T) {
	slow.Test(t)
	t.Parallel()
	for n := range *deaths {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			t.Parallel()
			runThroughDeath(t)
		})
	}
}

func runThroughDeath(t *testing.T) {
	dir, work := t.TempDir(), t.TempDir()
	first, report := startDev(t, dir, freeAddress(t), "--agents", "2")
	online(t, report.URL, "agent-1")
	online(t, report.URL, "agent-2")
	_, plan, err := flow.Read("diamond", []byte(diamondOfCommands))
	require.NoError(t, err)
	inputs, err := json.Marshal(map[string]string{"dir": work})
	require.NoError(t, err)
	in := contract.RunInput{Plan: *plan, Inputs: inputs}
	begin := contract.StartOfRun("diamond-1", &in, 0)
	temporal, err := client.Dial(client.Options{HostPort: report.Temporal})
	require.NoError(t, err)
	_, err = temporal.ExecuteWorkflow(t.Context(), begin.Options(), contract.RunWorkflow, in)
	temporal.Close()
	require.NoError(t, err)
	ledger := work + "/ledger"
	require.Eventually(t, func() bool { return len(lines(ledger)) == 4 }, patience, tick) // a is over, b and c go

	first.signal(t, syscall.SIGKILL)
	first.exit(t)
	killAgents(dir)
	_, report = startDev(t, dir, strings.TrimPrefix(report.URL, "http://"), "--agents", "2")
	require.NoError(t, touch(work+"/go"))
	if temporal, err = client.Dial(client.Options{HostPort: report.Temporal}); err != nil {
		require.NoError(t, err)
	}
	defer temporal.Close()
	var end job.Ledger
	require.NoError(t, temporal.GetWorkflow(t.Context(), contract.RunWorkflowID("diamond-1"), "").Get(t.Context(), &end))

	require.Equal(t, api.RunCompleted, end.Status, end.Why)
	require.JSONEq(t, `{"text": "of-a-b of-a-c"}`, string(end.Entry("d").Output))
	said := lines(ledger)
	require.Equal(t, []string{"begin-a", "end-a"}, said[:2])
	require.Equal(t, []string{"begin-d", "end-d"}, said[len(said)-2:])
	for _, once := range []string{"begin-a", "end-a", "end-b", "end-c", "begin-d", "end-d"} {
		require.Equal(t, 1, count(said, once), "%s: %v", once, said)
	}
}

func count(all []string, one string) (n int) {
	for _, s := range all {
		if s == one {
			n++
		}
	}
	return n
}

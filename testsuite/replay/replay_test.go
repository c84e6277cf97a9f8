// Package replay replays recorded workflow histories against the present code: a change that would break a workflow
// under way fails here. `make record` records histories; CONTRIBUTING.md, "Changing a workflow", says when.
package replay

import (
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/worker"
)

// registered collects the workflow types that worker registers.
type registered struct {
	sdkworker.WorkflowRegistry
	types []string
}

func (r *registered) RegisterWorkflowWithOptions(w any, o workflow.RegisterOptions) {
	r.types = append(r.types, o.Name)
	r.WorkflowRegistry.RegisterWorkflowWithOptions(w, o)
}

// Every workflow has recorded histories and replays all of them.
func TestReplay(t *testing.T) {
	t.Parallel()
	all := &registered{WorkflowRegistry: sdkworker.NewWorkflowReplayer()}
	worker.RegisterWorkflows(all)
	require.NotEmpty(t, all.types)
	for _, name := range all.types {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files, err := filepath.Glob(filepath.Join("histories", name, "*.json*"))
			require.NoError(t, err)
			require.NotEmpty(t, files,
				"workflow %s has no recorded history: run `make record` and commit testsuite/replay/histories/%s", name, name)
			for _, file := range files {
				t.Run(filepath.Base(file), func(t *testing.T) {
					t.Parallel()
					history := readHistory(t, file)
					asked := &versions{recorded: versionsOf(t, history)}
					replayer, err := sdkworker.NewWorkflowReplayerWithOptions(
						sdkworker.WorkflowReplayerOptions{DataConverter: contract.Payloads,
							Interceptors: []interceptor.WorkerInterceptor{asked}})
					require.NoError(t, err)
					worker.RegisterWorkflows(replayer)
					begun := history.GetEvents()[0].GetWorkflowExecutionStartedEventAttributes()
					require.NoError(t, replayer.ReplayWorkflowHistoryWithOptions(quiet{}, history,
						sdkworker.ReplayWorkflowHistoryOptions{OriginalExecution: workflow.Execution{
							ID: begun.GetWorkflowId(), RunID: begun.GetOriginalExecutionRunId()}}))
					require.Empty(t, asked.differ, "the code asks for these versions at another place than the history, "+
						"and so goes another way than it went; Temporal does not notice that")
				})
			}
		})
	}
}

// versions compares the versions that the code gets with those that a history has.
type versions struct {
	interceptor.WorkerInterceptorBase
	recorded map[string]workflow.Version // by change
	differ   []string                    // changes
}

func (v *versions) InterceptWorkflow(
	ctx workflow.Context, next interceptor.WorkflowInboundInterceptor,
) interceptor.WorkflowInboundInterceptor {
	return &inbound{v.WorkerInterceptorBase.InterceptWorkflow(ctx, next), v}
}

type inbound struct {
	interceptor.WorkflowInboundInterceptor
	versions *versions
}

func (i *inbound) Init(next interceptor.WorkflowOutboundInterceptor) error {
	asked := &outbound{interceptor.WorkflowOutboundInterceptorBase{Next: next}, i.versions}
	return i.WorkflowInboundInterceptor.Init(asked)
}

type outbound struct {
	interceptor.WorkflowOutboundInterceptorBase
	versions *versions
}

func (o *outbound) GetVersion(ctx workflow.Context, change string, lowest, highest workflow.Version) workflow.Version {
	got := o.Next.GetVersion(ctx, change, lowest, highest)
	if recorded, has := o.versions.recorded[change]; has && got != recorded {
		o.versions.differ = append(o.versions.differ, change)
	}
	return got
}

func versionsOf(t *testing.T, history *historypb.History) map[string]workflow.Version {
	t.Helper()
	found := map[string]workflow.Version{}
	for _, e := range history.GetEvents() {
		if m := e.GetMarkerRecordedEventAttributes(); m.GetMarkerName() == "Version" {
			var change string
			var version workflow.Version
			from := converter.GetDefaultDataConverter().FromPayloads
			require.NoError(t, from(m.GetDetails()["change-id"], &change))
			require.NoError(t, from(m.GetDetails()["version"], &version))
			found[change] = version
		}
	}
	return found
}

// readHistory reads a recorded history; long ones are compressed.
func readHistory(t *testing.T, name string) *historypb.History {
	t.Helper()
	file, err := os.Open(name)
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	var text io.Reader = file
	if strings.HasSuffix(name, ".gz") {
		text, err = gzip.NewReader(file)
		require.NoError(t, err)
	}
	history, err := client.HistoryFromJSON(text, client.HistoryJSONOptions{})
	require.NoError(t, err)
	return history
}

// A folder of histories without a workflow means that one was renamed, which no history survives.
func TestNoForgottenHistories(t *testing.T) {
	t.Parallel()
	all := &registered{WorkflowRegistry: sdkworker.NewWorkflowReplayer()}
	worker.RegisterWorkflows(all)
	entries, err := os.ReadDir("histories")
	require.NoError(t, err)
	for _, e := range entries {
		require.Contains(t, all.types, e.Name())
	}
}

// quiet drops the replayer's log.
type quiet struct{}

func (quiet) Debug(string, ...any) {}
func (quiet) Info(string, ...any)  {}
func (quiet) Warn(string, ...any)  {}
func (quiet) Error(string, ...any) {}

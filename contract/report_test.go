package contract

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/array"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/job"
)

// Temporal keeps the newest heartbeat of each attempt in the workflow's mutable state, and terminates a workflow with 8
// MiB of it. Those of all attempts that a run or an array may have under way fit, whatever agents report.
func TestHeartbeatsOfAllAttemptsFit(t *testing.T) {
	t.Parallel()
	const mutableState, others = 8 << 20, 512 << 10
	text := func(n int) string { return strings.Repeat(`"`, n) } // JSON takes two bytes for each
	now := time.Date(2026, 11, 22, 12, 0, 0, 123456789, time.UTC)
	progress := fleet.Progress{Percent: 99, Step: text(200), Message: text(1000)}
	report := AttemptReport{AgentID: text(63), Instance: text(64), Epoch: 1 << 40, Hub: text(63), StartedAt: &now, Begun: true,
		Progress: &progress, CheckpointDigest: text(64)}
	for n := range 100 {
		progress.Percent = n % 2 * 50
		report.Marks = AddMark(report.Marks, progress, now)
	}
	require.Len(t, report.Marks, maxMarks)
	bundle, err := Payloads.ToPayload(report)
	require.NoError(t, err)
	require.Less(t, len(bundle.Data)*array.MaxParallel, mutableState-others, "arrays keep no checkpoints")
	report.Checkpoint = append(append(json.RawMessage{'"'}, bytes.Repeat([]byte("x"), fleet.MaxCheckpointBytes-2)...), '"')
	task, err := Payloads.ToPayload(report)
	require.NoError(t, err)
	require.Less(t, len(task.Data)*job.MaxParallel, mutableState-others)
	t.Logf("a heartbeat of a bundle has up to %d bytes, one of a task %d", len(bundle.Data), len(task.Data))
}

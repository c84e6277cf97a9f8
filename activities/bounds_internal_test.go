package activities

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/sdk/api"
)

// What runs and jobs keep of what expressions give has bounds: else their workflows get messages that Temporal does not
// take, and can neither end nor be asked.
func TestWhatExpressionsGiveIsBounded(t *testing.T) {
	t.Parallel()
	evaluator := NewEvaluator(nil)
	in := contract.EvaluateInput{Run: "r", Plan: &job.Plan{Cluster: "default"}, Key: "inputs.k",
		Inputs: json.RawMessage(`{"k":"` + strings.Repeat("x", 60_000) + `"}`)}
	for n := range 60 {
		id := fmt.Sprint("s", n)
		in.Plan.Steps = append(in.Plan.Steps, job.PlannedStep{ID: id,
			Step: api.Step{Approve: &api.StepApprove{Message: "${inputs.k}"}}})
		in.Begin = append(in.Begin, id)
	}
	answer, err := evaluator.Evaluate(t.Context(), in)
	require.NoError(t, err)
	require.Len(t, answer.Begin, 60)
	require.Regexp(t, "^sha256:.{64}$", answer.Key)
	text, err := json.Marshal(answer)
	require.NoError(t, err)
	require.Less(t, len(text), 100_000)

	for key, kept := range map[string]bool{"x": true, strings.Repeat("x", 256): true, strings.Repeat("<", 200): false} {
		of := contract.EvaluateInput{Run: "r", Plan: in.Plan, Key: "inputs.k"}
		of.Inputs, err = json.Marshal(map[string]string{"k": key})
		require.NoError(t, err)
		answer, err := evaluator.Evaluate(t.Context(), of)
		require.NoError(t, err)
		require.Equal(t, kept, answer.Key == key, "JSON has 6 bytes for each of %q", key[:1])
	}

	in.Key, in.Begin = "", []string{"each"}
	in.Plan.Steps = []job.PlannedStep{{ID: "each", Step: api.Step{ForEach: &api.ForEach{Count: 100},
		Task: &api.TaskSpec{Type: "cell"}}}}
	in.Steps = []api.StepEntry{{Step: "before", Elements: make([]api.StepWork, job.MaxInlineAll-99)}}
	answer, err = evaluator.Evaluate(t.Context(), in)
	require.NoError(t, err)
	require.Contains(t, answer.Begin[0].Error, "more than 5000 elements")
}

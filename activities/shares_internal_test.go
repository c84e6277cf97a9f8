package activities

import (
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/job"
	"mainstay.dev/mainstay/ratelimit"
)

// Expressions of one tenant, each within its bounds, must not take the whole worker.
func TestTenantsHaveSharesOfTheWorkForExpressions(t *testing.T) {
	t.Parallel()
	e := &Evaluator{shares: &shares{ratelimit.New(0.001, 10)}}
	evaluate := func(run, key string) error {
		_, err := e.Evaluate(t.Context(), contract.EvaluateInput{Run: run, Plan: &job.Plan{}, Key: key})
		return err
	}
	const costly = "string(lists.range(300).all(a, lists.range(300).all(b, a + b >= 0)))"
	for range 5 {
		require.NoError(t, evaluate("beta:r", "'cheap'"))
	}
	require.NoError(t, evaluate("acme:r", costly))
	require.NoError(t, evaluate("acme:r", costly), "a whole burst was not more than spent")
	require.ErrorIs(t, evaluate("acme:r", "'cheap'"), errShare)
	require.NoError(t, evaluate("beta:r", "'cheap'"))
}

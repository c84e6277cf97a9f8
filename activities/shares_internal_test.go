package activities

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/sdk/api"
)

// Expressions of one tenant, each within its bounds, must not take the whole worker.
func TestTenantsHaveSharesOfTheWorkForExpressions(t *testing.T) {
	t.Parallel()
	e := &Evaluator{shares: newShares(0.001, 10)}
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

type placesOfAll struct{ Places }

func (placesOfAll) Place(context.Context, string, api.TaskSpec) (contract.TaskPlace, string, error) {
	return contract.TaskPlace{}, "", nil
}

// The tasks of many elements take time to fill in, also where their expressions cost next to nothing.
func TestElementsCountInTheShareOfTheirTenant(t *testing.T) {
	t.Parallel()
	e := &Evaluator{places: placesOfAll{}, shares: newShares(0.001, 100)}
	begin := func(tenant string, elements int) (contract.Evaluated, error) {
		step := job.PlannedStep{ID: "s", Dynamic: true, Step: api.Step{ForEach: &api.ForEach{Count: elements},
			Task: &api.TaskSpec{Type: "hash", Cluster: "c", Payload: []byte(`{"n":"${index}"}`)}}}
		return e.Evaluate(t.Context(), contract.EvaluateInput{Run: tenant + ":r", Plan: &job.Plan{
			Steps: []job.PlannedStep{step}}, Begin: []string{"s"}})
	}
	answer, err := begin("acme", 500)
	require.NoError(t, err)
	require.Len(t, answer.Begin, 1)
	require.Empty(t, answer.Begin[0].Error)
	require.Len(t, answer.Begin[0].Array.Items, 500)
	_, err = begin("acme", 500)
	require.NoError(t, err, "a whole burst was not more than spent")
	_, err = begin("acme", 1)
	require.ErrorIs(t, err, errShare)
	_, err = begin("beta", 1)
	require.NoError(t, err)
}

// What events and runs have is read into memory: no tenant may have much of it at a time, nor all together.
func TestWhatExpressionsReadAtATimeHasABound(t *testing.T) {
	t.Parallel()
	s := newShares(shareRate, shareBurst)
	first, err := s.begin(t.Context(), "acme", readOfTenant/2+1)
	require.NoError(t, err)
	require.NoError(t, first.aside(t.Context(), func() error { // it has no turn meanwhile, but still its room
		_, err := s.begin(t.Context(), "acme", readOfTenant/2+1)
		require.ErrorIs(t, err, errTurn)
		little, err := s.begin(t.Context(), "acme", 1<<10)
		require.NoError(t, err)
		little.ended()
		return nil
	}))
	other, err := s.begin(t.Context(), "beta", 2*readOfTenant)
	require.NoError(t, err, "one that is larger than all room has it alone")
	other.ended()
	first.ended()
	again, err := s.begin(t.Context(), "acme", readOfTenant)
	require.NoError(t, err)
	again.ended()
}

// slowPlaces are asked by runs of one tenant at a time, until they answer.
type slowPlaces struct {
	placesOfAll
	asked, answer chan struct{}
}

func (p slowPlaces) Place(ctx context.Context, id string, spec api.TaskSpec) (contract.TaskPlace, string, error) {
	p.asked <- struct{}{}
	<-p.answer
	return p.placesOfAll.Place(ctx, id, spec)
}

// However many runs of a tenant begin together, a worker evaluates for one at a time: each may take a second of a core
// before it counts. One that waits for a cluster keeps nobody waiting.
func TestRunsOfATenantAreEvaluatedOneAfterAnother(t *testing.T) {
	t.Parallel()
	places := slowPlaces{asked: make(chan struct{}), answer: make(chan struct{})}
	e := &Evaluator{places: places, shares: newShares(0.001, 10)}
	begin := func(run string) error {
		step := job.PlannedStep{ID: "s", Step: api.Step{Task: &api.TaskSpec{Type: "hash", Cluster: "c"}}}
		_, err := e.Evaluate(t.Context(), contract.EvaluateInput{Run: run, Plan: &job.Plan{
			Steps: []job.PlannedStep{step}}, Begin: []string{"s"}})
		return err
	}
	held, err := e.shares.begin(t.Context(), "acme", 0)
	require.NoError(t, err)
	require.ErrorIs(t, begin("acme:r"), errTurn)
	held.ended()
	ended := make(chan error)
	for range 3 {
		go func() { ended <- begin("acme:r") }()
		<-places.asked // each while those before it wait
	}
	close(places.answer)
	for range 3 {
		require.NoError(t, <-ended)
	}
	// Those that were let in before the share was used up cannot be many.
	costly := func() error {
		_, err := e.Evaluate(t.Context(), contract.EvaluateInput{Run: "beta:r", Plan: &job.Plan{},
			Key: "string(lists.range(300).all(a, lists.range(300).all(b, a + b >= 0)))"})
		return err
	}
	for range 20 {
		go func() { ended <- costly() }()
	}
	evaluated := 0
	for range 20 {
		if err := <-ended; err == nil {
			evaluated++
		}
	}
	require.LessOrEqual(t, evaluated, 2, "one that is let in, and one that brings the share to its end")
}

// heldPlaces have another run take its tenant's turn when the first task is placed, until the last is.
type heldPlaces struct {
	placesOfAll
	shares *shares
	left   *int
	other  **evaluating
}

func (p heldPlaces) Place(ctx context.Context, id string, spec api.TaskSpec) (contract.TaskPlace, string, error) {
	if *p.other == nil {
		other, err := p.shares.begin(ctx, "acme", 0)
		if err != nil {
			return contract.TaskPlace{}, "", err
		}
		*p.other = other
	}
	if *p.left--; *p.left == 0 {
		(*p.other).ended()
	}
	return p.placesOfAll.Place(ctx, id, spec)
}

// A run gives its turn away once for all elements of a step: beside other runs of its tenant it would wait for each.
func TestAStepGivesItsTurnAwayOnce(t *testing.T) {
	t.Parallel()
	left, other := 50, (*evaluating)(nil)
	e := &Evaluator{shares: newShares(shareRate, shareBurst)}
	e.places = heldPlaces{shares: e.shares, left: &left, other: &other}
	step := job.PlannedStep{ID: "s", Step: api.Step{ForEach: &api.ForEach{Count: left},
		Task: &api.TaskSpec{Type: "hash", Cluster: "c"}}}
	answer, err := e.Evaluate(t.Context(), contract.EvaluateInput{Run: "acme:r", Plan: &job.Plan{
		Steps: []job.PlannedStep{step}}, Begin: []string{"s"}})
	require.NoError(t, err)
	require.Len(t, answer.Begin[0].Tasks, 50)
}

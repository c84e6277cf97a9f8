package job

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/flow"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// dispatch starts a run, or answers the run that its key has started before.
func (h *Handlers) dispatch(ctx context.Context, name string, r *api.DispatchRequest) (api.Run, error) {
	name, err := rest.OwnJob(ctx, name)
	if err != nil {
		return api.Run{}, err
	}
	if len(r.Inputs) > job.MaxInputsBytes {
		return api.Run{}, httpapi.Problem(protocol.CodePayloadTooLarge, "inputs are larger than 64 KiB")
	}
	if err := api.ValidateStartAt(r.StartAt, time.Now()); err != nil {
		return api.Run{}, rest.Invalid("body.start_at", err)
	}
	tenant, _ := api.CutTenant(name)
	id, digest := api.Qualify(tenant, api.NewRunID()), digestOf(r)
	if r.IdempotencyKey != "" {
		id = contract.KeyedRunID(name, r.IdempotencyKey)
		if run, err := h.duplicate(ctx, id, digest); err != nil || run.ID != "" {
			return run, err
		}
	}
	_, j, err := h.find(ctx, name)
	if err != nil {
		return api.Run{}, err
	}
	if j.Paused != nil {
		return api.Run{}, httpapi.Problem(protocol.CodeConflict, "the job is paused: resume it first")
	}
	d := j.Definition()
	if d.HasInstances() {
		return api.Run{}, httpapi.Problem(protocol.CodeConflict,
			"the job has instances, and no runs: they were started when it was applied")
	}
	cluster, err := h.KnownCluster(ctx, d.Cluster)
	if err != nil {
		return api.Run{}, err
	}
	plan, inputs, err := h.planned(ctx, name, &j, r)
	if err != nil {
		return api.Run{}, err
	}
	in := &contract.RunInput{
		Plan:    *plan,
		Inputs:  inputs,
		Origin:  api.RunOrigin{By: rest.Actor(ctx)},
		StartAt: r.StartAt.UTC(),
	}
	access.Touch(ctx, "run", id)
	startCtx, cancel := context.WithTimeout(ctx, rest.CallTimeout)
	defer cancel()
	err = h.Store.Runs().Start(startCtx, id, digest, in, cluster.TenantWeights[tenant])
	if store.KindOf(err) == store.Exists {
		return h.duplicate(ctx, id, digest)
	}
	if err != nil {
		return api.Run{}, h.Answer(err, "start a run", protocol.CodeInternal)
	}
	ledger := job.NewLedger(plan, id, inputs, in.Origin, time.Now().UTC())
	ledger.Delay(in.StartAt)
	return api.Run{ID: id, Cluster: d.Cluster, Tenant: tenant, WorkflowID: contract.RunWorkflowID(id),
		Ledger: api.Ledger(*ledger)}, nil
}

// planned checks the inputs of a run, fills in their defaults, and makes its plan.
func (h *Handlers) planned(
	ctx context.Context, name string, j *job.Job, r *api.DispatchRequest,
) (*job.Plan, json.RawMessage, error) {
	done, err := h.turn(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer done()
	d := j.Definition()
	plan, err := flow.PlanOf(name, j.Version, d)
	if err != nil {
		return nil, nil, h.Answer(err, "plan a run", protocol.CodeInternal)
	}
	plan, inputs, err := flow.Begin(flow.WithLimit(ctx), d, plan, r.Inputs)
	if err != nil {
		return nil, nil, rest.Invalid("body.inputs", err)
	}
	return plan, inputs, nil
}

// digestOf distinguishes dispatches with the same key by their values. Their start time does not count: +2h is another
// time whenever it is said.
func digestOf(r *api.DispatchRequest) string {
	sum := sha256.Sum256([]byte(api.JSONDigest(r.Inputs)))
	return hex.EncodeToString(sum[:16])
}

// duplicate is the run that was started under an id before, unless that was with other inputs; none if there is none.
func (h *Handlers) duplicate(ctx context.Context, id, digest string) (api.Run, error) {
	ctx, cancel := context.WithTimeout(ctx, rest.CallTimeout)
	defer cancel()
	run, first, err := h.Store.Runs().Describe(ctx, id)
	switch {
	case store.KindOf(err) == store.NotFound:
		return api.Run{}, nil
	case err != nil:
		return api.Run{}, h.Answer(err, "describe a run", protocol.CodeUnknownRun)
	case first != digest:
		return api.Run{}, httpapi.Problem(protocol.CodeIdempotency,
			"the idempotency key was sent before with other inputs: send the same, or use another key")
	}
	_, err = h.Store.Runs().Complete(ctx, &run)
	run.Duplicate = true
	return run, h.Answer(err, "read a run's end", protocol.CodeUnknownRun)
}

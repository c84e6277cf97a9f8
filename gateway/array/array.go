// Package array answers what clients ask about arrays: submit, read, list and steer them, and read what their elements
// brought.
package array

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/array"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/payload"
	"mainstay.dev/sdk/protocol"
)

// Handlers answer the requests.
type Handlers struct{ *rest.Core }

type getInput struct {
	rest.ByID
	Wait string `query:"wait" maxLength:"32" example:"30s" doc:"Hold the answer until the array has ended, waits for a person, or this time is over. At most 60s."`
}

type listInput struct {
	Cluster rest.Slug       `query:"cluster"`
	Type    rest.Slug       `query:"type"`
	Tenant  rest.Slug       `query:"tenant"`
	Status  api.ArrayStatus `query:"status" enum:"running,paused,blocked,completed,partial,failed,cancelled"`
	rest.RecordPageInput
}

type elementsInput struct {
	rest.ByID
	Status api.ElementStatus `query:"status" enum:"queued,retry_wait,running,review,dead_letter,completed,failed,cancelled"`
	rest.PageInput
}

type resultsInput struct {
	rest.ByID
	rest.PageInput
}

// Register adds the operations.
func (h *Handlers) Register(routes rest.API) {
	r := rest.On(routes, "Arrays").Scoped()
	rest.Respond(r, "submit-array", "POST /arrays", "Submit an array",
		"Many small tasks of one kind for the price of one. Answers 202 once the array is durable. An array whose "+
			"id or idempotency key was submitted before is answered as it stands, with 200 and \"duplicate\": true.",
		h.submit, rest.Payload, rest.Status(http.StatusAccepted), rest.Also(http.StatusOK, "It was submitted before"))
	rest.List(r, "arrays", "list-arrays", "GET /arrays", "List arrays",
		"Newest first. An array appears within about a second of its change.", h.list)
	rest.Serve(r, "get-array", "GET /arrays/{id}", "Get an array, or wait for it",
		"With how many of its elements have each status.", h.wait, rest.Held)
	rest.List(r, "elements", "list-elements", "GET /arrays/{id}/elements", "List an array's elements",
		"By their numbers, each with its status and why it failed or waits.", h.elements)
	rest.List(r, "results", "list-results", "GET /arrays/{id}/results", "List what an array's elements returned",
		"In the order in which they completed. Of an array that is at work, as far as it is.", h.results)
	rest.Respond(r, "stream-results", "GET /arrays/{id}/results.ndjson", "Read all that an array's elements returned",
		"The same as the list, without pages: one JSON object on each line. If not all can be read, the last line has error.",
		h.stream, rest.Held, rest.Stream(httpapi.NDJSON, "The results.", "Each line is a result."))
	for _, a := range []struct {
		action           contract.ArrayAction
		summary, details string
	}{
		{contract.PauseArray, "Pause an array", "Nothing new begins; bundles under way finish."},
		{contract.ResumeArray, "Resume an array", ""},
		{contract.CancelArray, "Cancel an array", "Bundles under way stop at their present element."},
	} {
		serveAction(r, a.action, a.summary, a.details,
			func(ctx context.Context, in *rest.To[*api.ReasonRequest]) (api.Array, error) {
				return h.act(ctx, in.ID, contract.ArrayRequest{Action: a.action, Reason: in.Body.Text()})
			})
	}
	serveAction(r, contract.RetryArray, "Run elements of an array again",
		"They get a fresh set of attempts. Possible until the array has ended.",
		func(ctx context.Context, in *rest.To[*api.RetryArrayRequest]) (api.Array, error) {
			body := rest.Given(in.Body)
			return h.act(ctx, in.ID, contract.ArrayRequest{Action: contract.RetryArray, Elements: body.Elements,
				Reason: body.Reason})
		})
	rest.Serve(r, "set-array-priority", "POST /arrays/{id}/priority", "Change an array's priority",
		"Of the bundles that begin from now on. Answers 409 conflict when the array has ended.",
		func(ctx context.Context, in *rest.To[api.TaskPriorityRequest]) (api.Array, error) {
			if !in.Body.Priority.Valid() {
				return api.Array{}, rest.Invalid("body.priority", api.ErrPriority)
			}
			return h.act(ctx, in.ID, contract.ArrayRequest{Action: contract.ReprioritizeArray,
				Priority: in.Body.Priority, Reason: in.Body.Reason})
		})
}

func serveAction[In any](
	r *rest.Routes, word contract.ArrayAction, summary, description string,
	do func(context.Context, *In) (api.Array, error),
) {
	rest.Serve(r, string(word)+"-array", "POST /arrays/{id}/"+string(word), summary,
		description+" Answers 409 conflict when the array's state does not allow it.", do)
}

// submit starts the array's workflow, or answers the array that was started under its id before.
func (h *Handlers) submit(ctx context.Context, in *rest.Body[api.ArrayRequest]) (*rest.StatusOutput[api.Array], error) {
	r := &in.Body
	named, ok := rest.OwnID(ctx, r.ID)
	if !ok {
		return nil, rest.Unknown(protocol.CodeUnknownArray)
	}
	if r.Tenant == "" {
		r.Tenant, _ = api.CutTenant(named)
	}
	var err error
	if r.Tenant, err = rest.OwnTenant(ctx, r.Tenant); err != nil {
		return nil, err
	}
	definition := array.DefinitionOf(r)
	if err := cmp.Or(definition.Validate(), payload.Elements(&definition.Spec, definition.Items)); err != nil {
		return nil, rest.Invalid("body", err)
	}
	digest, err := definition.Digest()
	if err != nil {
		return nil, rest.Invalid("body", errors.New("items and payload must be JSON"))
	}
	id, err := rest.NewID(r.ID, r.Tenant, r.Cluster, r.IdempotencyKey, api.NewArrayID)
	if err != nil {
		return nil, rest.Invalid("body.id", err)
	}
	access.Touch(ctx, "array", id)
	place, err := h.Place(ctx, r.TaskSpec, id)
	if err != nil {
		return nil, err
	}
	placed := place.Input(id, r.TaskSpec)
	definition.Spec = placed.Spec
	err = h.Store.Arrays().Start(ctx, id, digest, &contract.ArrayInput{Definition: definition, Lane: placed.Lane,
		DeadLetterRetention: placed.DeadLetterRetention, By: rest.Who(ctx)}, place.TenantWeight)
	if store.KindOf(err) == store.Exists {
		return h.duplicate(ctx, id, digest)
	}
	if err != nil {
		return nil, h.Answer(err, "start an array", protocol.CodeInternal)
	}
	total := definition.Total()
	return &rest.StatusOutput[api.Array]{Status: http.StatusAccepted, Body: api.Array{
		ArrayEntry: api.ArrayEntry{ID: id, Type: r.Type, Cluster: r.Cluster, Tenant: r.Tenant, Labels: r.Labels,
			Elements: total, Status: api.ArrayRunning},
		Counts:     api.ElementCounts{Total: total, Queued: total},
		WorkflowID: contract.ArrayWorkflowID(id),
	}}, nil
}

// duplicate answers the array that was submitted before, unless that was with another body.
func (h *Handlers) duplicate(ctx context.Context, id, digest string) (*rest.StatusOutput[api.Array], error) {
	first, err := h.Store.Arrays().Describe(ctx, id)
	if err != nil {
		return nil, h.Answer(err, "describe an array", protocol.CodeUnknownArray)
	}
	if first.Digest != digest {
		return nil, httpapi.Problem(
			protocol.CodeIdempotency,
			"an array with this id or idempotency key was submitted before with another body: submit the same body, "+
				"or use another id or key",
		)
	}
	if err := h.Store.Arrays().Complete(ctx, &first); err != nil {
		return nil, h.Answer(err, "read an array's end", protocol.CodeUnknownArray)
	}
	first.Duplicate = true
	return &rest.StatusOutput[api.Array]{Status: http.StatusOK, Body: first.Array}, nil
}

// describe is an array as Temporal itself knows it.
func (h *Handlers) describe(ctx context.Context, id string) (store.Array, error) {
	id, err := rest.OwnArray(ctx, id)
	if err != nil {
		return store.Array{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, rest.CallTimeout)
	defer cancel()
	a, err := h.Store.Arrays().Describe(ctx, id)
	if err == nil && !rest.Sees(ctx, a.Tenant) {
		return store.Array{}, rest.Unknown(protocol.CodeUnknownArray)
	}
	return a, h.Answer(err, "describe an array", protocol.CodeUnknownArray)
}

// wait returns the array as soon as it has ended or waits for a person, or as it stands when the time is over.
func (h *Handlers) wait(ctx context.Context, in *getInput) (a api.Array, err error) {
	wait, err := rest.ParseWait(in.Wait)
	if err != nil {
		return a, err
	}
	id, err := rest.OwnArray(ctx, in.ID)
	if err != nil {
		return a, err
	}
	workflowID := contract.ArrayWorkflowID(id)
	err = h.WaitForEnd(ctx, wait, "wait for an array", workflowID, func(ctx context.Context, last bool) (bool, error) {
		found, err := h.describe(ctx, id)
		if err != nil || !last && !found.Status.Final() && found.Status != api.ArrayBlocked {
			return false, err
		}
		ctx, cancel := context.WithTimeout(ctx, rest.CallTimeout)
		defer cancel()
		err = h.Store.Arrays().Complete(ctx, &found)
		a = found.Array
		return true, h.Answer(err, "read an array's end", protocol.CodeUnknownArray)
	})
	return a, err
}

func (h *Handlers) list(ctx context.Context, in *listInput) (page rest.Page[api.ArrayEntry], err error) {
	if in.Tenant, err = rest.OwnTenant(ctx, in.Tenant); err != nil {
		return page, err
	}
	query := rest.OfType(contract.ArrayWorkflow, rest.Filter(contract.AttrCluster, in.Cluster),
		rest.Filter(contract.AttrTaskType, in.Type), rest.Filter(contract.AttrTenant, in.Tenant),
		contract.StatusTerm(in.Status))
	return rest.PageOf(ctx, h.Core, "list arrays", h.Store.Arrays().Newest, query, in.RecordPageInput)
}

// elements asks the array's workflow, which answers after its end too.
func (h *Handlers) elements(
	ctx context.Context, in *elementsInput,
) (page rest.Page[api.ElementEntry], err error) {
	a, err := h.describe(ctx, in.ID)
	if err != nil {
		return page, err
	}
	list := "elements of " + a.ID + " " + string(in.Status)
	token, err := h.PageTokens.Open(list, in.PageToken)
	if err != nil {
		return page, err
	}
	from, _ := strconv.Atoi(string(token))
	if err := httpapi.Reserve(ctx, store.ResultsTake); err != nil { // a worker may read the whole history for it
		return page, err
	}
	ctx, cancel := context.WithTimeout(ctx, rest.CallTimeout)
	defer cancel()
	found, err := h.Store.Arrays().Elements(ctx, a.ID, contract.ElementsRequest{Status: in.Status, From: from,
		Limit: in.PageSize})
	page.Items = found.Elements
	if found.Next > 0 {
		page.Next = h.PageTokens.Seal(list, []byte(strconv.Itoa(found.Next)))
	}
	return page, h.Answer(err, "ask an array for its elements", protocol.CodeUnknownArray)
}

func (h *Handlers) results(ctx context.Context, in *resultsInput) (page rest.Page[api.ArrayResult], err error) {
	a, err := h.describe(ctx, in.ID)
	if err != nil {
		return page, err
	}
	list := "results of " + a.ID
	token, err := h.PageTokens.Open(list, in.PageToken)
	if err != nil {
		return page, err
	}
	var at *store.ResultsAt
	if token != nil && json.Unmarshal(token, &at) != nil {
		return page, httpapi.InvalidField("query.page_token", "is not the next_page_token of this list")
	}
	if err := httpapi.Reserve(ctx, store.ResultsTake); err != nil {
		return page, err
	}
	ctx, cancel := context.WithTimeout(ctx, rest.CallTimeout)
	defer cancel()
	results, next, err := h.Store.Arrays().Results(ctx, &a, at, in.PageSize)
	if err != nil {
		return page, h.Answer(err, "read an array's results", protocol.CodeUnknownArray)
	}
	return rest.Page[api.ArrayResult]{Items: results, Next: h.PageTokens.Seal(list, next.Seal())}, nil
}

// streamPage is how many results one read takes. They are written line by line.
const streamPage = 1000

// stream writes all results as lines. Once it has begun to write, an error is the last line.
func (h *Handlers) stream(ctx context.Context, in *rest.ByID) (*huma.StreamResponse, error) {
	a, err := h.describe(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	if err := httpapi.Reserve(ctx, store.ResultsTake); err != nil {
		return nil, err
	}
	results, next, err := h.Store.Arrays().Results(ctx, &a, nil, streamPage)
	if err != nil {
		return nil, h.Answer(err, "read an array's results", protocol.CodeUnknownArray)
	}
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		hc.SetHeader("Content-Type", httpapi.NDJSON)
		lines := json.NewEncoder(hc.BodyWriter())
		for {
			for i := range results {
				if lines.Encode(&results[i]) != nil {
					return // the client has gone
				}
			}
			if next == nil {
				return
			}
			if results, next, err = h.Store.Arrays().Results(hc.Context(), &a, next, streamPage); err != nil {
				_ = lines.Encode(map[string]string{"error": "the rest cannot be read now: ask again"})
				return
			}
		}
	}}, nil
}

// act runs an update on an open array and answers the array as it stands afterwards.
func (h *Handlers) act(ctx context.Context, id string, r contract.ArrayRequest) (api.Array, error) {
	a, err := h.describe(ctx, id)
	if err != nil {
		return a.Array, err
	}
	r.By = rest.Who(ctx)
	_, err = store.Update(ctx, h.Store, contract.ArrayUpdate, a.WorkflowID, r)
	if store.KindOf(err) == store.NotFound {
		return a.Array, httpapi.Problem(protocol.CodeConflict, "the array has ended: it is "+string(a.Status))
	}
	if err == nil {
		err = h.Store.Arrays().Complete(ctx, &a)
	}
	return a.Array, h.Answer(err, "update an array", protocol.CodeUnknownArray)
}

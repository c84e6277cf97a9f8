// Package array answers what clients ask about arrays: submit, read, list and steer them, and read what their elements
// brought.
package array

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"mainstay.dev/mainstay/access"
	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/array"
	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/httpapi"
	"mainstay.dev/mainstay/payload"
	"mainstay.dev/mainstay/protocol"
	"mainstay.dev/mainstay/store"
)

// Handlers answer the requests.
type Handlers struct{ *rest.Core }

// IDInput names an array. It is exported because huma reads parameters of exported parts only.
type IDInput struct {
	ID string `path:"id" doc:"The array's id."`
}

type submitInput struct{ Body api.ArrayRequest }

type getInput struct {
	IDInput
	Wait string `query:"wait" maxLength:"32" example:"30s" doc:"Hold the answer until the array has ended, waits for a person, or this time is over. At most 60s."`
}

type listInput struct {
	Cluster string            `query:"cluster" maxLength:"63" pattern:"^[a-z0-9][a-z0-9._-]*$"`
	Type    string            `query:"type" maxLength:"63" pattern:"^[a-z0-9][a-z0-9._-]*$"`
	Tenant  string            `query:"tenant" maxLength:"63" pattern:"^[a-z0-9][a-z0-9._-]*$"`
	Status  array.ArrayStatus `query:"status" enum:"running,paused,blocked,completed,partial,failed,cancelled"`
	rest.RecordPageInput
}

type listOutput struct {
	Body struct {
		Arrays        []api.ArrayEntry `json:"arrays"`
		NextPageToken string           `json:"next_page_token,omitempty"`
	}
}

type elementsInput struct {
	IDInput
	Status array.Status `query:"status" enum:"queued,retry_wait,running,review,dead_letter,completed,failed,cancelled"`
	rest.PageInput
}

type elementsOutput struct {
	Body struct {
		Elements      []array.ElementEntry `json:"elements"`
		NextPageToken string               `json:"next_page_token,omitempty"`
	}
}

type resultsInput struct {
	IDInput
	rest.PageInput
}

type resultsOutput struct {
	Body struct {
		Results       []api.ArrayResult `json:"results"`
		NextPageToken string            `json:"next_page_token,omitempty"`
	}
}

type reasonInput struct {
	IDInput
	Body *api.ReasonRequest `doc:"May be left out."`
}

type retryInput struct {
	IDInput
	Body *api.RetryArrayRequest `doc:"May be left out."`
}

type prioritizeInput struct {
	IDInput
	Body api.TaskPriorityRequest
}

// Register adds the operations.
func (h *Handlers) Register(routes huma.API) {
	submit := rest.WithPayload(rest.WithStatus(http.StatusAccepted, op("submit-array", "POST /arrays",
		"Submit an array",
		"Many small tasks of one kind for the price of one. Answers 202 once the array is durable. An array whose id or idempotency key was submitted before is answered as it stands, with 200 and \"duplicate\": true.")))
	submit.Responses = map[string]*huma.Response{"200": {
		Description: "It was submitted before",
		Content: map[string]*huma.MediaType{"application/json": {
			Schema: routes.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[api.Array](), true, "Array")}},
	}}
	httpapi.Register(routes, access.Operate.Scoped(), submit, h.submit)
	httpapi.Register(routes, access.View.Scoped(), op("list-arrays", "GET /arrays", "List arrays",
		"Newest first. An array appears within about a second of its change."), h.list)
	rest.Hold(routes, access.View.Scoped(), op("get-array", "GET /arrays/{id}", "Get an array, or wait for it",
		"With how many of its elements have each status."), h.wait)
	httpapi.Register(routes, access.View.Scoped(), op("list-elements", "GET /arrays/{id}/elements",
		"List an array's elements", "By their numbers, each with its status and why it failed or waits."), h.elements)
	httpapi.Register(routes, access.View.Scoped(), op("list-results", "GET /arrays/{id}/results",
		"List what an array's elements returned",
		"In the order in which they completed. Of an array that is at work, as far as it is."), h.results)
	stream := op("stream-results", "GET /arrays/{id}/results.ndjson", "Read all that an array's elements returned",
		"The same as the list, without pages: one JSON object on each line. If not all can be read, the last line has error.")
	stream.Responses = map[string]*huma.Response{"200": {Description: "The results.",
		Content: map[string]*huma.MediaType{httpapi.NDJSON: {Schema: &huma.Schema{Type: huma.TypeString,
			Description: "Each line is a result."}}}}}
	httpapi.Register(routes, access.View.Scoped(), stream, h.stream)
	for _, a := range []struct {
		action           contract.ArrayAction
		summary, details string
	}{
		{contract.PauseArray, "Pause an array", "Nothing new begins; bundles under way finish."},
		{contract.ResumeArray, "Resume an array", ""},
		{contract.CancelArray, "Cancel an array", "Bundles under way stop at their present element."},
	} {
		rest.Serve(routes, access.Operate.Scoped(), action(a.action, a.summary, a.details),
			func(ctx context.Context, in *reasonInput) (api.Array, error) {
				return h.act(ctx, in.ID, contract.ArrayRequest{Action: a.action, Reason: in.Body.Text()})
			})
	}
	rest.Serve(routes, access.Operate.Scoped(), action(contract.RetryArray, "Run elements of an array again",
		"They get a fresh set of attempts. Possible until the array has ended."),
		func(ctx context.Context, in *retryInput) (api.Array, error) {
			r := contract.ArrayRequest{Action: contract.RetryArray}
			if in.Body != nil {
				r.Elements, r.Reason = in.Body.Elements, in.Body.Reason
			}
			return h.act(ctx, in.ID, r)
		})
	rest.Serve(routes, access.Operate.Scoped(), op("set-array-priority",
		"POST /arrays/{id}/priority", "Change an array's priority",
		"Of the bundles that begin from now on. Answers 409 conflict when the array has ended."),
		func(ctx context.Context, in *prioritizeInput) (api.Array, error) {
			if !in.Body.Priority.Valid() {
				return api.Array{}, rest.Invalid("body.priority", fleet.ErrPriority)
			}
			return h.act(ctx, in.ID, contract.ArrayRequest{Action: contract.ReprioritizeArray,
				Priority: in.Body.Priority, Reason: in.Body.Reason})
		})
}

func op(id, at, summary, description string) huma.Operation {
	return rest.Op("Arrays", id, at, summary, description)
}

func action(word contract.ArrayAction, summary, description string) huma.Operation {
	return op(string(word)+"-array", "POST /arrays/{id}/"+string(word), summary,
		description+" Answers 409 conflict when the array's state does not allow it.")
}

// submit starts the array's workflow, or answers the array that was started under its id before.
func (h *Handlers) submit(ctx context.Context, in *submitInput) (*rest.StatusOutput[api.Array], error) {
	r := &in.Body
	named, ok := rest.OwnID(ctx, r.ID)
	if !ok {
		return nil, rest.Unknown(protocol.CodeUnknownArray)
	}
	if r.Tenant == "" {
		r.Tenant, _ = fleet.CutTenant(named)
	}
	var err error
	if r.Tenant, err = rest.OwnTenant(ctx, r.Tenant); err != nil {
		return nil, err
	}
	definition := r.Definition()
	if err := cmp.Or(definition.Validate(), payload.Array(&definition)); err != nil {
		return nil, rest.Invalid("body", err)
	}
	digest, err := definition.Digest()
	if err != nil {
		return nil, rest.Invalid("body", errors.New("items and payload must be JSON"))
	}
	id, err := idOf(r)
	if err != nil {
		return nil, rest.Invalid("body.id", err)
	}
	access.Touch(ctx, "array", id)
	ctx, cancel := context.WithTimeout(ctx, rest.CallTimeout)
	defer cancel()
	cluster, err := h.KnownCluster(ctx, r.Cluster)
	if err != nil {
		return nil, err
	}
	place, err := h.PlaceOf(ctx, &cluster, r.TaskSpec, id)
	if err != nil {
		return nil, err
	}
	if err := h.OpenLanes(ctx, &place, &r.TaskSpec); err != nil {
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
			Elements: total, Status: array.ArrayRunning},
		Counts:     array.ElementCounts{Total: total, Queued: total},
		WorkflowID: contract.ArrayWorkflowID(id),
	}}, nil
}

// idOf is the full id that the array will have.
func idOf(r *api.ArrayRequest) (string, error) {
	switch {
	case r.ID != "" && r.IdempotencyKey != "":
		return "", errors.New("give id or idempotency_key, not both")
	case r.ID != "":
		tenant, name := fleet.CutTenant(r.ID)
		if tenant != "" && tenant != r.Tenant {
			return "", errors.New("names another tenant than the field tenant")
		}
		return fleet.Qualify(r.Tenant, name), fleet.ValidateTaskID(name)
	case r.IdempotencyKey != "":
		return contract.KeyedTaskID(r.Tenant, r.Cluster, r.IdempotencyKey), nil
	}
	return fleet.Qualify(r.Tenant, api.NewArrayID()), nil
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
			"an array with this id or idempotency key was submitted before with another body: submit the same body, or use another id or key",
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
		if err != nil || !last && !found.Status.Final() && found.Status != array.ArrayBlocked {
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

func (h *Handlers) list(ctx context.Context, in *listInput) (out *listOutput, err error) {
	if in.Tenant, err = rest.OwnTenant(ctx, in.Tenant); err != nil {
		return nil, err
	}
	query := rest.AllOf(contract.Equals("WorkflowType", contract.ArrayWorkflow),
		rest.Filter(contract.AttrCluster.GetName(), in.Cluster), rest.Filter(contract.AttrTaskType.GetName(), in.Type),
		rest.Filter(contract.AttrTenant.GetName(), in.Tenant), contract.StatusTerm(in.Status))
	out = &listOutput{}
	out.Body.Arrays, out.Body.NextPageToken, err = rest.PageOf(
		ctx, h.Core, "list arrays", h.Store.Arrays().Newest, query, in.RecordPageInput)
	return out, err
}

// elements asks the array's workflow, which answers after its end too.
func (h *Handlers) elements(ctx context.Context, in *elementsInput) (*elementsOutput, error) {
	a, err := h.describe(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	list := "elements of " + a.ID + " " + string(in.Status)
	token, err := h.PageTokens.Open(list, in.PageToken)
	if err != nil {
		return nil, err
	}
	from, _ := strconv.Atoi(string(token))
	if err := httpapi.Reserve(ctx, store.ResultsTake); err != nil { // a worker may read the whole history for it
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, rest.CallTimeout)
	defer cancel()
	page, err := h.Store.Arrays().Elements(ctx, a.ID, contract.ElementsRequest{Status: in.Status, From: from,
		Limit: in.PageSize})
	if err != nil {
		return nil, h.Answer(err, "ask an array for its elements", protocol.CodeUnknownArray)
	}
	out := &elementsOutput{}
	out.Body.Elements = append([]array.ElementEntry{}, page.Elements...)
	if page.Next > 0 {
		out.Body.NextPageToken = h.PageTokens.Seal(list, []byte(strconv.Itoa(page.Next)))
	}
	return out, nil
}

func (h *Handlers) results(ctx context.Context, in *resultsInput) (*resultsOutput, error) {
	a, err := h.describe(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	list := "results of " + a.ID
	token, err := h.PageTokens.Open(list, in.PageToken)
	if err != nil {
		return nil, err
	}
	var at *store.ResultsAt
	if token != nil && json.Unmarshal(token, &at) != nil {
		return nil, httpapi.InvalidField("query.page_token", "is not the next_page_token of this list")
	}
	if err := httpapi.Reserve(ctx, store.ResultsTake); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, rest.CallTimeout)
	defer cancel()
	results, next, err := h.Store.Arrays().Results(ctx, &a, at, in.PageSize)
	if err != nil {
		return nil, h.Answer(err, "read an array's results", protocol.CodeUnknownArray)
	}
	out := &resultsOutput{}
	out.Body.Results = append([]api.ArrayResult{}, results...)
	out.Body.NextPageToken = h.PageTokens.Seal(list, next.Seal())
	return out, nil
}

// streamed is how many results are read and written at a time.
const streamed = 1000

// stream writes all results as lines. Once it has begun to write, an error is the last line.
func (h *Handlers) stream(ctx context.Context, in *IDInput) (*huma.StreamResponse, error) {
	a, err := h.describe(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	if err := httpapi.Reserve(ctx, store.ResultsTake); err != nil {
		return nil, err
	}
	results, next, err := h.Store.Arrays().Results(ctx, &a, nil, streamed)
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
			if results, next, err = h.Store.Arrays().Results(hc.Context(), &a, next, streamed); err != nil {
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

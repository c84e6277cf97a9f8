// Package bulk acts on many tasks at once.
package bulk

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"mainstay.dev/mainstay/access"
	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/httpapi"
)

// Handlers answer the requests.
type Handlers struct{ *rest.Core }

type bulkInput struct {
	Body api.BulkRequest
}

type getBulkInput struct {
	ID   string `path:"id" doc:"The operation's id."`
	Wait string `query:"wait" maxLength:"32" example:"30s" doc:"Hold the answer until the operation has ended, or this time is over. At most 60s."`
}

type cancelBulkInput struct {
	ID   string             `path:"id" doc:"The operation's id."`
	Body *api.ReasonRequest `doc:"May be left out."`
}

type listBulksInput struct {
	rest.RecordPageInput
}

type listBulksOutput struct {
	Body struct {
		Bulks         []api.Bulk `json:"bulks"`
		NextPageToken string     `json:"next_page_token,omitempty"`
	}
}

// Register adds the operations.
func (h *Handlers) Register(routes huma.API) {
	start := rest.Op("Bulk operations", "bulk-tasks", "POST /tasks/bulk",
		"Act on many tasks",
		"Cancels, retries, discards, decides or reprioritizes all tasks that the filter selects. Answers 202 once the operation is durable, or 200 to a dry run. "+
			"Tasks submitted within the last second may be left out. Each task is asked once; what it refuses counts as skipped.")
	start.DefaultStatus = http.StatusAccepted
	start.Responses = map[string]*huma.Response{"200": {Description: "What a dry run found",
		Content: map[string]*huma.MediaType{
			"application/json": {Schema: routes.OpenAPI().Components.Schemas.Schema(bulkType, true, "Bulk")},
		}}}
	httpapi.Register(routes, access.Operate.Scoped(), start,
		func(ctx context.Context, in *bulkInput) (*rest.StatusOutput[api.Bulk], error) {
			bulk, err := h.startBulk(ctx, &in.Body)
			if err != nil {
				return nil, err
			}
			status := http.StatusAccepted
			if bulk.DryRun {
				status = http.StatusOK
			}
			return &rest.StatusOutput[api.Bulk]{Status: status, Body: bulk}, nil
		})
	httpapi.Register(routes, access.View.Scoped(), rest.Op("Bulk operations", "list-bulks", "GET /tasks/bulk",
		"List bulk operations",
		"Newest first. An operation appears within about a second of its start."), h.listBulks)
	httpapi.Register(routes, access.View.Scoped(), rest.Op("Bulk operations", "get-bulk", "GET /tasks/bulk/{id}",
		"Get a bulk operation, or wait for it", "Its counts grow a page of tasks at a time."),
		func(ctx context.Context, in *getBulkInput) (*rest.Output[api.Bulk], error) {
			wait, err := rest.ParseWait(in.Wait)
			if err != nil {
				return nil, err
			}
			return rest.Reply(h.waitForBulk(ctx, in.ID, wait))
		})
	httpapi.Register(routes, access.Operate.Scoped(),
		rest.Op("Bulk operations", "cancel-bulk", "POST /tasks/bulk/{id}/cancel",
			"Stop a bulk operation", "What it has done stays done. The page of tasks under way is finished first. Answers 409 conflict when it has ended."),
		func(ctx context.Context, in *cancelBulkInput) (*rest.Output[api.Bulk], error) {
			return rest.Reply(h.cancelBulk(ctx, in.ID, in.Body))
		})
}

// Package healing shows what healing does, and lets people pause it and ask for a cycle.
package healing

import (
	"context"
	"maps"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"mainstay.dev/mainstay/access"
	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/httpapi"
)

// Handlers answer the requests.
type Handlers struct{ *rest.Core }

type healingTriggerInput struct {
	Body *api.HealingTrigger `doc:"May be left out."`
}

type healingReasonInput struct {
	Body *api.ReasonRequest `doc:"May be left out."`
}

type listHealingInput struct {
	Cluster string              `query:"cluster" maxLength:"63" pattern:"^[a-z0-9][a-z0-9._-]*$"`
	Agent   string              `query:"agent" maxLength:"63" pattern:"^[a-z0-9][a-z0-9._-]*$"`
	Type    fleet.HealingType   `query:"type" enum:"failover_agent,reassign_task,rebalance_cluster,drain_agent,reduce_load,restore_agent,report"`
	Status  fleet.HealingStatus `query:"status" enum:"running,succeeded,failed,planned,skipped,reported" doc:"Those that have ended are told apart after the page is read, so a page may hold fewer than page_size."`
	rest.RecordPageInput
}

type listHealingOutput struct {
	Body struct {
		Actions       []fleet.HealingRecord `json:"actions"`
		NextPageToken string                `json:"next_page_token,omitempty"`
	}
}

// Register adds the operations.
func (h *Handlers) Register(routes huma.API) {
	httpapi.Register(routes, access.View, rest.Op("Healing", "get-healing", "GET /healing/status",
		"Get how healing stands",
		"Whether it runs, its last cycle with what that decided and why, and the actions under way."),
		func(ctx context.Context, _ *struct{}) (*rest.Output[api.HealingStatus], error) {
			return rest.Reply(h.healingStatus(ctx))
		})
	httpapi.Register(routes, access.View, rest.Op("Healing", "list-healing-actions", "GET /healing/actions",
		"List healing actions",
		"Newest first: what was done, what was deliberately not done, and what needs a person, each with the facts that led to it."), h.listHealing)
	trigger := rest.Op("Healing", "trigger-healing", "POST /healing/trigger",
		"Run a healing cycle now",
		"Also while healing is paused; clusters whose mode is off or dry_run stay so. Answers 200 with what the cycle decided, or 202 when it takes longer than a few seconds.")
	record := routes.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[fleet.HealingCycleRecord](), true,
		"HealingCycleRecord")
	later := map[string]*huma.Response{"202": {Description: "It is under way",
		Content: map[string]*huma.MediaType{"application/json": {Schema: record}}}}
	trigger.DefaultStatus, trigger.Responses = http.StatusOK, maps.Clone(later)
	httpapi.Register(routes, access.Operate, trigger, h.triggerHealing)
	for action, description := range map[string]string{
		"pause":  "No cycle begins by itself until it is resumed. What is under way goes on.",
		"resume": "Cycles begin by themselves again.",
	} {
		httpapi.Register(routes, access.Operate, rest.Op("Healing", action+"-healing", "POST /healing/"+action,
			map[string]string{"pause": "Pause healing", "resume": "Resume healing"}[action], description),
			func(ctx context.Context, in *healingReasonInput) (*rest.Output[api.HealingStatus], error) {
				return rest.Reply(h.pauseHealing(ctx, action == "pause", in.Body))
			})
	}
}

package agent

import (
	"context"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/gateway/rest"
)

type membersInput struct {
	ID string `path:"id" doc:"The cluster's name."`
	rest.PageInput
}

type listMembersOutput struct {
	Body struct {
		Members       []api.Agent `json:"members"`
		NextPageToken string      `json:"next_page_token,omitempty"`
	}
}

func (h *Handlers) listMembers(ctx context.Context, in *membersInput) (*listMembersOutput, error) {
	view, err := h.View(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	live := h.Live(ctx)
	members := make([]api.Agent, len(view.Members))
	for i := range view.Members {
		members[i] = agentOf(&view.Cluster, &view.Members[i], live)
	}
	out := &listMembersOutput{}
	out.Body.Members, out.Body.NextPageToken, err = rest.Page(members, in.PageToken, in.PageSize,
		func(a *api.Agent) string { return a.ID })
	return out, err
}

package hub

import (
	"context"

	"mainstay.dev/mainstay/protocol"
)

// sendLog takes lines that an agent sends because somebody reads them.
func (h *Hub) sendLog(_ context.Context, in *logInput) (*logOutput, error) {
	agent, err := h.agentOf(in.Authorized)
	if err != nil {
		return nil, err
	}
	return &logOutput{Body: protocol.LogTaken{Watching: h.logs.Add(agent, in.TaskID, in.Body)}}, nil
}

// sendState hands an agent's report to the request that waits for it.
func (h *Hub) sendState(_ context.Context, in *stateInput) (*stateOutput, error) {
	agent, err := h.agentOf(in.Authorized)
	if err != nil {
		return nil, err
	}
	if err := validateReport(&in.Body); err != nil {
		return nil, err
	}
	return &stateOutput{Body: protocol.StateTaken{Awaited: h.states.Answer(agent, in.Body)}}, nil
}

// agentOf is the agent whose session at this hub a request belongs to.
func (h *Hub) agentOf(a Authorized) (string, error) {
	claims, err := h.authorize(a)
	if err != nil {
		return "", err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	s, err := h.find(claims)
	if err != nil {
		return "", err
	}
	return s.agent, nil
}

func validateReport(r *protocol.StateReport) error {
	if err := r.State.Validate(); err != nil {
		return invalidField("state", err)
	}
	for i := range r.Manifest {
		if err := r.Manifest[i].Validate(); err != nil {
			return invalidField("manifest", err)
		}
	}
	for i := range r.Entries {
		if err := r.Entries[i].Validate(); err != nil {
			return invalidField("entries", err)
		}
	}
	return nil
}

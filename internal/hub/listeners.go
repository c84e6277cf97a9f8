package hub

import (
	"context"

	"mainstay.dev/sdk/protocol"
)

// sendLog accepts log lines from an agent.
func (e endpoints) sendLog(_ context.Context, in *logInput) (*logOutput, error) {
	agent, err := e.agentOf(in.Authorized)
	if err != nil {
		return nil, err
	}
	return &logOutput{Body: protocol.LogTaken{Watching: e.hub.logs.Add(agent, in.TaskID, in.Body)}}, nil
}

// sendState hands an agent's report to the request that waits for it.
func (e endpoints) sendState(_ context.Context, in *stateInput) (*stateOutput, error) {
	agent, err := e.agentOf(in.Authorized)
	if err != nil {
		return nil, err
	}
	if err := validateReport(&in.Body); err != nil {
		return nil, err
	}
	return &stateOutput{Body: protocol.StateTaken{Awaited: e.hub.states.Answer(agent, in.Body)}}, nil
}

// EpochOf returns the newest epoch that the hub knows for an agent's cluster; 0 without a session.
func (f facts) EpochOf(agent string) int64 {
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	s := f.hub.sessions[agent]
	if s == nil {
		return 0
	}
	d := f.hub.directives[s.cluster] // members of a sharded cluster write under its version
	return max(s.epoch, d.LeaderEpoch, d.Version)
}

// agentOf returns the agent whose session at this hub makes the request.
func (e endpoints) agentOf(a Authorized) (string, error) {
	claims, err := e.authorize(a)
	if err != nil {
		return "", err
	}
	e.hub.mu.Lock()
	defer e.hub.mu.Unlock()
	s, err := e.hub.findLocked(claims)
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

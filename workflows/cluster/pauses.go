package cluster

import (
	"errors"

	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/mainstay/workflows"
)

// pauses pauses and resumes lanes or the whole cluster, for operators.
type pauses struct {
	quiet
	run *run
}

func (p pauses) handle(ctx workflow.Context) error {
	return errors.Join(
		handle(ctx, p.run, contract.PauseUpdate, p.pause, p.mayPause),
		handle(ctx, p.run, contract.ResumeUpdate, p.resume, func(req contract.PauseRequest) error {
			_, err := laneName(req.Lane)
			return err
		}))
}

func (p pauses) mayPause(req contract.PauseRequest) error {
	lane, err := laneName(req.Lane)
	if err != nil {
		return err
	}
	if err := p.run.state.MayPause(lane); err != nil {
		return workflows.Refuse("%s", err)
	}
	return nil
}

// pause answers when the hubs have applied the pause, so that nothing begins afterwards.
func (p pauses) pause(ctx workflow.Context, req contract.PauseRequest) (contract.Done, error) {
	lane, err := laneName(req.Lane)
	if err != nil {
		return contract.Done{}, err
	}
	changed, err := p.run.state.Pause(lane, req.Reason, workflow.Now(ctx))
	if err != nil {
		return contract.Done{}, workflows.Refuse("%s", err)
	}
	if changed {
		p.run.hubs.awaitFollowed(ctx, "a pause")
	}
	return contract.Done{}, nil
}

func (p pauses) resume(_ workflow.Context, req contract.PauseRequest) (contract.Done, error) {
	lane, err := laneName(req.Lane)
	if err == nil {
		p.run.state.Pauses.Resume(lane)
	}
	return contract.Done{}, err
}

// laneName normalises a lane's name; empty means the whole cluster.
func laneName(lane string) (string, error) {
	if lane == "" {
		return "", nil
	}
	name, err := task.ParseLane(lane)
	if err != nil {
		return "", workflows.Refuse("lane %s", err)
	}
	return name, nil
}

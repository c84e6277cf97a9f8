package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
)

// heardTimeout bounds how long a pause waits for the hubs to hear of it. One that is away hears at its next join.
const heardTimeout = 2 * time.Second

// setPauseHandlers takes what operators say about pausing.
func (r *clusterRun) setPauseHandlers(ctx workflow.Context) error {
	err := contract.PauseUpdate.Handle(ctx, r.pause, r.validatePause)
	if err != nil {
		return err
	}
	return contract.ResumeUpdate.Handle(ctx, r.resume, func(req contract.PauseRequest) error {
		if _, err := laneName(req.Lane); err != nil {
			return err
		}
		return r.refuseDeleted()
	})
}

func (r *clusterRun) validatePause(req contract.PauseRequest) error {
	lane, err := laneName(req.Lane)
	if err != nil {
		return err
	}
	if err := r.state.MayPause(lane); err != nil {
		return refuse("%s", err)
	}
	return r.refuseDeleted()
}

// pause holds a lane or the whole cluster back. It answers when the hubs have heard, so that nothing begins afterwards.
func (r *clusterRun) pause(ctx workflow.Context, req contract.PauseRequest) (contract.ClusterView, error) {
	lane, err := laneName(req.Lane)
	if err != nil {
		return contract.ClusterView{}, err
	}
	changed, err := r.state.Pause(lane, req.Reason, workflow.Now(ctx))
	if err != nil {
		return contract.ClusterView{}, refuse("%s", err)
	}
	if changed {
		r.state.Version++
		version := r.state.Version
		_, _ = workflow.AwaitWithOptions(ctx, named(heardTimeout, "until the hubs have heard of a pause"), func() bool { return r.heard >= version })
	}
	return r.view(), nil
}

func (r *clusterRun) resume(_ workflow.Context, req contract.PauseRequest) (contract.ClusterView, error) {
	lane, err := laneName(req.Lane)
	if err != nil {
		return contract.ClusterView{}, err
	}
	if r.state.Pauses.Resume(lane) {
		r.state.Version++
	}
	return r.view(), nil
}

// laneName is a lane's one form; empty, the whole cluster, stays so.
func laneName(lane string) (string, error) {
	if lane == "" {
		return "", nil
	}
	name, err := fleet.ParseLane(lane)
	if err != nil {
		return "", refuse("lane %s", err)
	}
	return name, nil
}

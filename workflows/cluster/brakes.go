package cluster

import (
	"errors"
	"time"

	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/workflows"
)

// brakes judges over all hubs whether the number of agents that vanished at once makes the network the likelier cause.
type brakes struct {
	quiet
	run     *run
	next    time.Time       // when the agents of a lost hub have been held long enough; zero: none are held
	leaving map[string]bool // lost hubs whose agents are being given up
}

func (b *brakes) open(workflow.Context, contract.ClusterInput) {
	b.leaving = map[string]bool{}
}

func (b *brakes) handle(ctx workflow.Context) error {
	return errors.Join(
		handle(ctx, b.run, contract.MissUpdate, b.miss, nil),
		handle(ctx, b.run, contract.ReleaseBrakeUpdate, contract.NoAnswer(b.release), nil))
}

func (b *brakes) miss(ctx workflow.Context, missing contract.Missing) (contract.Directive, error) {
	b.run.state.Miss(missing.Hub, missing.Agents, missing.Idle, workflow.Now(ctx))
	b.run.hubs.takeTurn(ctx)
	return b.run.hubs.directive(), nil
}

// release makes the hubs give up the agents that they hold; that also releases the brake over all hubs.
func (b *brakes) release(_ workflow.Context, req contract.ReleaseBrakeRequest) error {
	req.Cluster = b.run.state.Config.Name
	b.run.hubs.release = append(b.run.hubs.release, req)
	return nil
}

// missHub reports whether the brake holds the members of a lost hub.
func (b *brakes) missHub(lost *contract.HubLost, now time.Time) (held bool) {
	working := func(agent string) bool { return len(lost.Attempts[agent]) > 0 }
	return !lost.Held && b.run.state.MissHub(lost.Hub, working, lost.At.Add(-workflows.HubNotice), now)
}

func (b *brakes) wake() (time.Time, string) {
	return b.next, "until the brake gives up the agents of a lost hub"
}

// settle gives up the agents of lost hubs that the brake holds no more. Their work is looked for again, beside the
// loop.
func (b *brakes) settle(ctx workflow.Context) {
	r, now := b.run, workflow.Now(ctx)
	if r.state.Braked() {
		r.state.SettleBrake(now)
	}
	if r.state.Braked() && r.state.HoldsNobody() {
		r.state.ReleaseBrake()
	}
	var over []string
	over, b.next = r.state.HeldHubs(now)
	for _, hub := range over {
		if b.leaving[hub] {
			continue
		}
		b.leaving[hub] = true
		workflow.GoNamed(ctx, "give up the agents of hub "+hub, func(ctx workflow.Context) {
			lost := contract.HubLost{Hub: hub, At: now, Held: true, Cluster: r.state.Config.Name}
			if err := workflows.AnnounceHubLost(ctx, lost); err != nil {
				workflow.GetLogger(ctx).Warn("The agents of a lost hub were not given up", "hub", hub, "error", err)
			}
			delete(b.leaving, hub)
		})
	}
}

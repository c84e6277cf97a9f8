package docker

import (
	"bytes"
	"context"
	"time"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/spawner"
)

// lookEvery is the time between two looks at the containers. Looks need no stream, so they outlive the engine's
// restarts.
const lookEvery = time.Second

// Watch implements spawner.Watcher. It also removes containers that ended a while ago, and those that were never
// started because a spawner died. After a restart of the spawner an end may be told again.
func (d *Docker) Watch(ctx context.Context, ended func(fleet.SpawnEnd)) {
	spawner.Look(ctx, d.o.Logger, "The Docker engine", lookEvery, func() error { return d.look(ctx, ended) })
}

func (d *Docker) look(ctx context.Context, ended func(fleet.SpawnEnd)) error {
	items, err := d.containers(ctx)
	if err != nil {
		return err
	}
	for i := range items {
		id, old := items[i].Labels[labelSpawnID], time.Unix(items[i].Created, 0)
		switch items[i].State {
		case container.StateExited, container.StateDead:
			c, err := d.find(ctx, id)
			if err != nil || c == nil || c.ID != items[i].ID || c.State.Running {
				continue
			}
			old = timeOf(c.State.FinishedAt)
			if d.ends.Take(id, c.ID) {
				reason := d.reason(ctx, c)
				d.o.Logger.Sugar().Infow("An agent's container has ended", "agent", id, "reason", reason)
				ended(fleet.SpawnEnd{AgentID: id, Cluster: items[i].Labels[labelCluster], At: old, Reason: reason,
					Gone: true})
			}
		case container.StateCreated:
		default:
			continue
		}
		if time.Since(old) > d.o.Keep {
			if err := d.Terminate(ctx, id, false); err != nil {
				return err
			}
		}
	}
	return nil
}

// reason says in words how a container ended.
func (d *Docker) reason(ctx context.Context, c *container.InspectResponse) string {
	state := c.State
	if state.Error != "" && !state.OOMKilled {
		return "its container could not be started: " + state.Error
	}
	return spawner.ContainerEnd("container", state.ExitCode, state.OOMKilled, c.HostConfig.Memory,
		func() string { return d.lastWords(ctx, c.ID) })
}

// lastWords is the last line of a container's log; empty where the engine's log driver cannot be read.
func (d *Docker) lastWords(ctx context.Context, handle string) string {
	log, err := d.engine.ContainerLogs(ctx, handle,
		client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true, Tail: "1"})
	if err != nil {
		return ""
	}
	defer func() { _ = log.Close() }()
	var text bytes.Buffer
	_, _ = stdcopy.StdCopy(&text, &text, log) // what was read until an error is good enough
	return spawner.LastWords(text.String())
}

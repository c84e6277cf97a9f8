package docker

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"mainstay.dev/mainstay/internal/spawner"
	"mainstay.dev/sdk/api"
)

// lookEvery is the time between two looks at the containers. Looks need no stream, so they outlive the engine's
// restarts.
const lookEvery = time.Second

// strayAfter is the age at which a volume without a container is removed: the engine makes both in one call.
const strayAfter = time.Minute

// Watch implements spawner.Watcher. It also removes containers that ended a while ago, and those never started because
// a spawner died. After a restart of the spawner it may report an end again.
func (d *Docker) Watch(ctx context.Context, ended func(api.SpawnEnd)) {
	d.ended.Store(&ended)
	spawner.Look(ctx, d.o.Logger, "The Docker engine", lookEvery, func() error { return d.look(ctx) })
}

func (d *Docker) look(ctx context.Context) error {
	items, err := d.containers(ctx)
	if err != nil {
		return err
	}
	here, ran := map[string]bool{}, map[string]container.Summary{}
	for i := range items {
		here[items[i].ID] = true
		id, old := items[i].Labels[labelSpawnID], time.Unix(items[i].Created, 0)
		switch items[i].State {
		case container.StateExited, container.StateDead:
			c, err := d.find(ctx, id)
			if err != nil || c == nil || c.ID != items[i].ID || c.State.Running {
				continue
			}
			old = timeOf(c.State.FinishedAt)
			d.tellEnd(ctx, c)
		case container.StateRunning:
			ran[items[i].ID] = items[i]
			continue
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
	for handle, c := range d.ran {
		if !here[handle] {
			d.tell(c.Labels, handle, time.Now(), func() string { return "somebody removed its container" })
		}
	}
	d.ran = ran
	d.ends.Retain(here)
	return d.removeStrayVolumes(ctx, items)
}

// removeStrayVolumes removes the volumes that an engine left when it was stopped while making a container. They may
// have no label yet; the engine refuses to remove one that is used.
func (d *Docker) removeStrayVolumes(ctx context.Context, containers []container.Summary) error {
	volumes, err := d.engine.VolumeList(ctx, client.VolumeListOptions{
		Filters: client.Filters{}.Add("name", nameOf(""))})
	if err != nil {
		return err
	}
	for _, v := range volumes.Items {
		stray := !slices.ContainsFunc(containers, func(c container.Summary) bool {
			return nameOf(c.Labels[labelSpawnID]) == v.Name
		})
		whose := v.Labels[labelSpawner]
		if stray && (whose == "" || whose == d.o.Name) && time.Since(timeOf(v.CreatedAt)) > strayAfter {
			_, err := d.engine.VolumeRemove(ctx, v.Name, client.VolumeRemoveOptions{})
			if err != nil && !errdefs.IsConflict(err) {
				return err
			}
		}
	}
	return nil
}

// tellEnd reports the end of a container, unless it needs no report.
func (d *Docker) tellEnd(ctx context.Context, c *container.InspectResponse) {
	d.tell(c.Config.Labels, c.ID, timeOf(c.State.FinishedAt), func() string { return d.reason(ctx, c) })
}

func (d *Docker) tell(labels map[string]string, handle string, at time.Time, why func() string) {
	ended, id := d.ended.Load(), labels[labelSpawnID]
	if ended == nil || !d.ends.Take(id, handle) {
		return
	}
	reason := why()
	d.o.Logger.Sugar().Infow("An agent's container has ended", "agent", id, "reason", reason)
	(*ended)(api.SpawnEnd{AgentID: id, Cluster: labels[labelCluster], At: at, Reason: reason, Gone: true})
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
	_, _ = stdcopy.StdCopy(&text, &text, log) // a partial log is good enough
	return spawner.LastWords(text.String())
}

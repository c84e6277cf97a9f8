// Package docker starts agents as containers of one Docker engine. All that it knows of them is in the engine: their
// names come from the spawns' ids and their labels name the spawner, so that the next process takes them over.
package docker

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/spawner"
	"mainstay.dev/sdk/api"
)

// Labels of the containers.
const (
	labelSpawner = "dev.mainstay.spawner"
	labelSpawnID = "dev.mainstay.spawn-id"
	labelCluster = "dev.mainstay.cluster"
)

const (
	// settleTime is how long a container must live to count as started: one that is given wrong options ends at once.
	settleTime = time.Second
	// goneLimit is how much longer than its grace a stop may take.
	goneLimit = 10 * time.Second
)

// Options describe a spawner of containers.
type Options struct {
	spawner.Options
	// Engine is the address of the engine, such as unix:///run/docker.sock or tcp://10.0.0.5:2376; empty: as
	// DOCKER_HOST and the like say, else the default socket. CA, Cert and Key are the files with which it is reached
	// over TLS; empty: without.
	Engine, CA, Cert, Key string
	// Network is the network of the containers; empty: the engine's default.
	Network string
	// Program is a file of the engine's machine that containers see as ProgramPath; empty: none.
	Program string
}

// Docker is a Spawner of containers. They live on when it ends.
type Docker struct {
	o      Options
	engine *client.Client
	turns  spawner.Turns
	ended  atomic.Pointer[func(api.SpawnEnd)] // takes ends that nobody asked for
	ends   spawner.Ends
	ran    map[string]container.Summary // by handle: the containers that ran when Watch looked last
}

// New makes a spawner. It does not call the engine, which may be away.
func New(o Options) (*Docker, error) {
	if err := o.Fill(); err != nil {
		return nil, err
	}
	options := []client.Opt{client.WithUserAgent("mainstay")}
	if o.CA != "" {
		options = append(options, client.WithTLSClientConfig(o.CA, o.Cert, o.Key))
	}
	if o.Engine == "" {
		options = append(options, client.FromEnv)
	} else {
		options = append(options, client.WithHost(o.Engine))
	}
	engine, err := client.New(options...)
	if err != nil {
		return nil, fmt.Errorf("reach the Docker engine: %w", err)
	}
	return &Docker{o: o, engine: engine}, nil
}

// Close ends the connections to the engine. The containers live on.
func (d *Docker) Close() { _ = d.engine.Close() }

// Platform implements spawner.Spawner.
func (d *Docker) Platform() api.Platform { return api.PlatformDocker }

// Size implements spawner.Sizer.
func (d *Docker) Size(ctx context.Context) (cpus int, memory int64, err error) {
	info, err := d.engine.Info(ctx, client.InfoOptions{})
	if err != nil {
		return 0, 0, fmt.Errorf("ask the Docker engine: %w", err)
	}
	return info.Info.NCPU, info.Info.MemTotal, nil
}

// nameOf is the name of an agent's container. The engine gives a name once, so nothing is started twice.
func nameOf(id string) string { return "mainstay-" + id }

// Spawn implements spawner.Spawner.
func (d *Docker) Spawn(ctx context.Context, spec cluster.SpawnSpec) (cluster.Spawned, error) {
	if err := spawner.CheckSpec(&spec); err != nil {
		return cluster.Spawned{}, err
	}
	release, err := d.turns.Take(ctx, spec.ID)
	if err != nil {
		return cluster.Spawned{}, err
	}
	defer release()
	c, err := d.find(ctx, spec.ID)
	if err == nil && c != nil && c.State.Status == container.StateCreated {
		// A spawner died between create and start. Whether the container has all its files is not known.
		err, c = d.remove(ctx, spec.ID), nil
	}
	if err == nil && c == nil {
		c, err = d.start(ctx, &spec)
	}
	if err != nil {
		return cluster.Spawned{}, err
	}
	if !c.State.Running {
		return cluster.Spawned{}, fmt.Errorf("%w: %s", spawner.ErrRefused, d.reason(ctx, c))
	}
	return d.spawned(spec.ID, spec.Cluster, c.ID, timeOf(c.State.StartedAt)), nil
}

func (d *Docker) spawned(id, clusterName, handle string, since time.Time) cluster.Spawned {
	return cluster.Spawned{ID: id, Cluster: clusterName, Spawner: d.o.Name, Platform: api.PlatformDocker,
		Handle: handle[:min(len(handle), 12)], StartedAt: since}
}

// find returns the container of an agent; nil when there is none.
func (d *Docker) find(ctx context.Context, id string) (*container.InspectResponse, error) {
	found, err := d.engine.ContainerInspect(ctx, nameOf(id), client.ContainerInspectOptions{})
	switch {
	case errdefs.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("look for the container of %s: %w", id, err)
	case found.Container.Config.Labels[labelSpawner] != d.o.Name:
		return nil, fmt.Errorf("%w: the container %s is not of the spawner %s", spawner.ErrRefused, nameOf(id), d.o.Name)
	}
	return &found.Container, nil
}

// start creates a container, gives it its files and starts it. It returns it as it is after settleTime. A container
// that could not be started is removed.
func (d *Docker) start(ctx context.Context, spec *cluster.SpawnSpec) (*container.InspectResponse, error) {
	options, user, err := d.describe(ctx, spec)
	if err != nil {
		return nil, err
	}
	created, err := d.engine.ContainerCreate(ctx, options)
	if err = refusal("create the container", err); err == nil {
		err = d.copyFiles(ctx, created.ID, spec, user)
	}
	if err == nil {
		_, err = d.engine.ContainerStart(ctx, created.ID, client.ContainerStartOptions{})
		err = refusal("start the container", err)
	}
	if err != nil {
		own, cancel := context.WithTimeout(context.WithoutCancel(ctx), goneLimit)
		defer cancel()
		return nil, errors.Join(err, d.remove(own, spec.ID))
	}
	d.o.Logger.Sugar().Infow("An agent was started", "agent", spec.ID, "cluster", spec.Cluster, "container", created.ID)
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(settleTime):
	}
	c, err := d.find(ctx, spec.ID)
	if err == nil && c == nil {
		err = fmt.Errorf("%w: somebody has removed its container", spawner.ErrRefused)
	}
	return c, err
}

// refusal says what failed. Only what the engine's absence or a busy engine explains is worth another try.
func refusal(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case client.IsErrConnectionFailed(err), errdefs.IsUnavailable(err), errdefs.IsCanceled(err),
		errdefs.IsDeadlineExceeded(err), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s: %w", what, err)
	}
	return fmt.Errorf("%w: %s: %w", spawner.ErrRefused, what, err)
}

// Terminate implements spawner.Spawner.
func (d *Docker) Terminate(ctx context.Context, id string, graceful bool) error {
	if api.ValidateID("id", id) != nil {
		return nil
	}
	release, err := d.turns.Take(ctx, id)
	if err != nil {
		return err
	}
	defer release()
	c, err := d.find(ctx, id)
	if errors.Is(err, spawner.ErrRefused) || err == nil && c == nil {
		return nil
	}
	if err != nil {
		return err
	}
	switch c.State.Status {
	case container.StateExited, container.StateDead:
		d.tellEnd(ctx, c) // before nobody can look at it any more
	}
	defer d.ends.Ask(id)()
	d.ends.Mark(c.ID)
	if graceful && c.State.Running {
		grace := int(d.o.StopGrace.Seconds() + 0.5)
		ctx, cancel := context.WithTimeout(ctx, d.o.StopGrace+goneLimit)
		defer cancel()
		_, err := d.engine.ContainerStop(ctx, c.ID, client.ContainerStopOptions{Timeout: &grace})
		if err != nil && !errdefs.IsNotFound(err) {
			return fmt.Errorf("stop the container of %s: %w", id, err)
		}
	}
	return d.remove(ctx, id)
}

// remove ends and removes a container with its volume; one that is not there is removed.
func (d *Docker) remove(ctx context.Context, id string) error {
	_, err := d.engine.ContainerRemove(ctx, nameOf(id), client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	if err == nil || errdefs.IsNotFound(err) {
		_, err = d.engine.VolumeRemove(ctx, nameOf(id), client.VolumeRemoveOptions{Force: true})
	}
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("remove the container of %s: %w", id, err)
	}
	return nil
}

// List implements spawner.Spawner.
func (d *Docker) List(ctx context.Context) ([]cluster.Spawned, error) {
	items, err := d.containers(ctx)
	if err != nil {
		return nil, err
	}
	list := []cluster.Spawned{}
	for i := range items {
		c := &items[i]
		if c.State == container.StateRunning || c.State == container.StatePaused {
			list = append(list, d.spawned(c.Labels[labelSpawnID], c.Labels[labelCluster], c.ID,
				time.Unix(c.Created, 0).UTC()))
		}
	}
	spawner.SortSpawned(list)
	return list, nil
}

// containers are all containers of this spawner, ended ones too.
func (d *Docker) containers(ctx context.Context) ([]container.Summary, error) {
	list, err := d.engine.ContainerList(ctx, client.ContainerListOptions{All: true,
		Filters: client.Filters{}.Add("label", labelSpawner+"="+d.o.Name)})
	if err != nil {
		return nil, fmt.Errorf("list the containers: %w", err)
	}
	return list.Items, nil
}

func timeOf(text string) time.Time {
	at, _ := time.Parse(time.RFC3339Nano, text)
	return at.UTC()
}

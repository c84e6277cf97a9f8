package docker

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/spawner"
	"mainstay.dev/sdk/api"
)

// ProgramPath is where a container sees Options.Program.
const ProgramPath = "/mainstay"

const (
	// cpuPeriod is the time in which a container may use its quota of the processors, in microseconds.
	cpuPeriod = 100_000
	// defaultPids bounds the processes and threads of a container.
	defaultPids = 1000
	// defaultTmp is the size of /tmp in bytes; resources.storage changes it.
	defaultTmp = 64 << 20
)

// describe puts together the container to create, with the user of the image. It fetches the image first where the pull
// policy says so.
func (d *Docker) describe(
	ctx context.Context, spec *cluster.SpawnSpec,
) (o client.ContainerCreateOptions, user string, err error) {
	image, err := d.o.ImageOf(spec)
	if err != nil {
		return o, "", err
	}
	if user, err = d.fetch(ctx, image, spec.Docker.Pull); err != nil {
		return o, "", err
	}
	info, err := d.engine.Info(ctx, client.InfoOptions{})
	if err != nil {
		return o, "", fmt.Errorf("ask the Docker engine: %w", err)
	}
	grace := int(d.o.StopGrace.Seconds() + 0.5)
	config := &container.Config{
		Image:       image,
		Env:         append(d.o.Environment(spec), d.o.FileEnvironment()...),
		Labels:      map[string]string{labelSpawner: d.o.Name, labelSpawnID: spec.ID, labelCluster: spec.Cluster},
		StopTimeout: &grace,
	}
	if command := d.o.CommandOf(spec); len(command) > 0 {
		config.Cmd = command[1:]
		if command[0] != "" {
			config.Entrypoint = command[:1]
		}
	}
	return client.ContainerCreateOptions{Config: config, HostConfig: d.host(spec, info.Info.LoggingDriver),
		Name: nameOf(spec.ID)}, user, nil
}

// host is what binds a container to its machine: limits and rights.
func (d *Docker) host(spec *cluster.SpawnSpec, logging string) *container.HostConfig {
	milli, _ := spec.Resources.MilliCPU()
	memory, _ := spec.Resources.MemoryBytes()
	tmp, _ := spec.Resources.StorageBytes()
	pids := int64(cmp.Or(spec.Docker.PidsLimit, defaultPids))
	h := &container.HostConfig{
		NetworkMode:    container.NetworkMode(d.o.Network),
		RestartPolicy:  container.RestartPolicy{Name: container.RestartPolicyDisabled}, // the cluster decides
		ReadonlyRootfs: !spec.Docker.WritableRoot,
		SecurityOpt:    []string{"no-new-privileges"},
		CapDrop:        []string{"ALL"},
		Tmpfs: map[string]string{"/tmp": "rw,exec,nosuid,nodev,mode=1777,size=" +
			strconv.FormatInt(cmp.Or(tmp, defaultTmp), 10)},
		Resources: container.Resources{Memory: memory, MemorySwap: memory, PidsLimit: &pids},
	}
	if milli > 0 {
		h.CPUPeriod, h.CPUQuota = cpuPeriod, max(1000, milli*cpuPeriod/1000)
	}
	if logging == "json-file" || logging == "local" { // others do not have these options
		h.LogConfig = container.LogConfig{Type: logging, Config: map[string]string{"max-size": "10m", "max-file": "3"}}
	}
	// The files' volume can be written although the root cannot. It has a name, so that it is found when the engine
	// made it and failed to make the container.
	h.Mounts = []mount.Mount{{Type: mount.TypeVolume, Source: nameOf(spec.ID), Target: spawner.FilesDir,
		VolumeOptions: &mount.VolumeOptions{Labels: map[string]string{labelSpawner: d.o.Name}}}}
	if d.o.Program != "" {
		h.Mounts = append(h.Mounts, mount.Mount{Type: mount.TypeBind, Source: d.o.Program, Target: ProgramPath,
			ReadOnly: true})
	}
	return h
}

// Fetch has the engine get an image, unless it has it.
func (d *Docker) Fetch(ctx context.Context, image string) error {
	_, err := d.fetch(ctx, image, api.PullMissing)
	return err
}

// fetch has the engine get an image, as the policy says, and returns the image's user.
func (d *Docker) fetch(ctx context.Context, image string, policy api.PullPolicy) (user string, err error) {
	found, err := d.engine.ImageInspect(ctx, image)
	missing := errdefs.IsNotFound(err)
	if err != nil && !missing {
		return "", fmt.Errorf("look for the image: %w", err)
	}
	switch {
	case missing && policy == api.PullNever:
		return "", fmt.Errorf("%w: the engine does not have the image %s, and scaling.spawn.docker.pull is never",
			spawner.ErrRefused, image)
	case missing || policy == api.PullAlways:
		pull, err := d.engine.ImagePull(ctx, image, client.ImagePullOptions{})
		if err == nil {
			err = pull.Wait(ctx)
		}
		if err != nil {
			return "", fmt.Errorf("pull the image %s: %w", image, err)
		}
		if found, err = d.engine.ImageInspect(ctx, image); err != nil {
			return "", fmt.Errorf("look for the image: %w", err)
		}
	}
	if found.Config != nil {
		user = found.Config.User
	}
	return user, nil
}

// copyFiles gives a container that was not started yet its secrets, which nothing but its user can read.
func (d *Docker) copyFiles(ctx context.Context, id string, spec *cluster.SpawnSpec, user string) error {
	contents, err := d.o.Files(spec)
	if err != nil || len(contents) == 0 {
		return err
	}
	uid, err := userID(user)
	if err != nil && d.o.JoinToken != nil {
		return err
	}
	var archive bytes.Buffer
	files := tar.NewWriter(&archive)
	for _, name := range slices.Sorted(maps.Keys(contents)) {
		header := &tar.Header{Name: name, Mode: 0o644, Uid: uid, Size: int64(len(contents[name]))}
		if name == spawner.TokenFile {
			header.Mode = 0o600
		}
		if err := files.WriteHeader(header); err != nil {
			return err
		}
		if _, err := files.Write(contents[name]); err != nil {
			return err
		}
	}
	if err := files.Close(); err != nil {
		return err
	}
	_, err = d.engine.CopyToContainer(ctx, id, client.CopyToContainerOptions{DestinationPath: spawner.FilesDir,
		Content: io.Reader(&archive)})
	return refusal("copy the agent's files", err)
}

// userID is the number of an image's user, which the container's files belong to.
func userID(user string) (int, error) {
	user, _, _ = strings.Cut(user, ":")
	if user == "" || user == "root" {
		return 0, nil
	}
	id, err := strconv.Atoi(user)
	if err != nil {
		return 0, fmt.Errorf("%w: the image's user is a name: give it as a number, so that the join token can be its file",
			spawner.ErrRefused)
	}
	return id, nil
}

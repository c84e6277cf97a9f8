package docker

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"mainstay.dev/mainstay/fleet"
)

const (
	// lookEvery is the time between two looks at the containers. Looks need no stream, so they outlive the engine's
	// restarts.
	lookEvery = time.Second
	// lastWordsLimit bounds what is quoted of a log.
	lastWordsLimit = 300
)

// ends are the containers whose ends need not be told.
type ends struct {
	mu    sync.Mutex
	asked map[string]int  // by agent: calls of Terminate under way
	told  map[string]bool // by container
}

// ask notes that an agent is being ended until done is called.
func (e *ends) ask(id string) (done func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.asked == nil {
		e.asked = map[string]int{}
	}
	e.asked[id]++
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.asked[id]--; e.asked[id] == 0 {
			delete(e.asked, id)
		}
	}
}

// take reports whether the end of an agent's container is to be told: nobody asked for it, and it was not told before.
func (e *ends) take(id, handle string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.asked[id] > 0 || e.told[handle] {
		return false
	}
	if e.told == nil {
		e.told = map[string]bool{}
	}
	e.told[handle] = true
	return true
}

func (e *ends) forget(handle string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.told, handle)
}

// Watch implements spawner.Watcher. It also removes containers that ended a while ago, and those that were never
// started because a spawner died. After a restart of the spawner an end may be told again.
func (d *Docker) Watch(ctx context.Context, ended func(fleet.SpawnEnd)) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	away := false
	for ctx.Err() == nil {
		err := d.look(ctx, ended)
		if (err != nil) != away && ctx.Err() == nil {
			if away = err != nil; away {
				d.o.Logger.Sugar().Warnw("The Docker engine does not answer", "error", err)
			} else {
				d.o.Logger.Info("The Docker engine answers again")
			}
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
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
			if d.ends.take(id, c.ID) {
				reason := d.reason(ctx, c)
				d.o.Logger.Sugar().Infow("An agent's container has ended", "agent", id, "reason", reason)
				ended(fleet.SpawnEnd{AgentID: id, Cluster: items[i].Labels[labelCluster], At: old, Reason: reason})
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
	switch {
	case state.OOMKilled && state.ExitCode == 128+int(unix.SIGKILL):
		return fmt.Sprintf("its container was killed: it used more than its %d MiB of memory",
			c.HostConfig.Memory>>20)
	case state.Error != "":
		return "its container could not be started: " + state.Error
	case state.ExitCode > 128 && unix.SignalName(unix.Signal(state.ExitCode-128)) != "":
		return "its container was ended by " + unix.SignalName(unix.Signal(state.ExitCode-128))
	}
	return fmt.Sprintf("its container ended with exit code %d%s", state.ExitCode, d.lastWords(ctx, c.ID))
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
	line := strings.TrimSpace(text.String())
	if line == "" {
		return ""
	}
	return ": " + strings.ToValidUTF8(line[:min(len(line), lastWordsLimit)], "?")
}

package spawner

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"time"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/sdk/api"
)

const (
	// settleTime is how long a process must live to count as started: one that is given wrong options ends at once.
	settleTime = time.Second
	// adoptedLook is how often a process that is nobody's child here is looked at.
	adoptedLook = 100 * time.Millisecond
	// goneLimit bounds waiting for a process after SIGKILL.
	goneLimit = 10 * time.Second
	// leftLimit bounds the wait for the end of an agent's children, and leftLook spaces the looks.
	leftLimit = 2 * time.Second
	leftLook  = 10 * time.Millisecond
	// endedKept is how long the end of a process that nobody asked to end is remembered.
	endedKept = time.Hour
)

// ProcessOptions describe a spawner of local processes.
type ProcessOptions struct {
	Options
	// Dir is the folder of its records and its agents' logs; one process may use it at a time.
	Dir string
}

// Process is a Spawner of processes on its own machine. They live on when it ends, and the next one on the same folder
// takes them over.
type Process struct {
	options ProcessOptions
	host    string
	lock    *os.File

	mu      sync.Mutex
	running map[string]*running // by id
	turns   Turns
	asked   map[string]bool // by id: Terminate was called
	closed  bool            // the folder may be another's: nothing is written
	ends    chan api.SpawnEnd
}

// running is an agent's process.
type running struct {
	record
	ended chan struct{} // closed when the process has ended
}

// NewProcess takes the folder and the processes that an earlier spawner left.
func NewProcess(o ProcessOptions) (*Process, error) {
	if err := o.Fill(); err != nil {
		return nil, err
	}
	host, _ := os.Hostname()
	p := &Process{options: o, host: host, running: map[string]*running{},
		asked: map[string]bool{}, ends: make(chan api.SpawnEnd, endsKept)}
	if err := os.MkdirAll(filepath.Join(o.Dir, "logs"), 0o700); err != nil {
		return nil, fmt.Errorf("make the spawner's folder: %w", err)
	}
	var err error
	if p.lock, err = lockFolder(o.Dir); err != nil {
		return nil, err
	}
	if err := p.adopt(); err != nil {
		_ = p.lock.Close()
		return nil, err
	}
	return p, nil
}

// Close gives the folder up. The processes live on.
func (p *Process) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	_ = p.lock.Close()
}

// Platform implements Spawner.
func (p *Process) Platform() api.Platform { return api.PlatformProcess }

// Size implements Sizer.
func (p *Process) Size(context.Context) (cpus int, memory int64, err error) {
	return runtime.NumCPU(), machineMemory(), nil
}

// Watch implements Watcher.
func (p *Process) Watch(ctx context.Context, ended func(api.SpawnEnd)) {
	for {
		select {
		case <-ctx.Done():
			return
		case end := <-p.ends:
			ended(end)
		}
	}
}

// adopt takes over the living processes of an earlier spawner, also those whose number it had not written yet.
func (p *Process) adopt() error {
	records, err := readRecords(p.options.Dir)
	if err != nil {
		return err
	}
	for _, rec := range records {
		if rec.PID == 0 {
			rec.PID = findProcess(rec)
			rec.Ticks = beginning(rec.PID)
		}
		switch {
		case rec.Ended != "" && time.Since(rec.EndedAt) < endedKept:
		case rec.Ended == "" && rec.alive():
			if err := writeRecord(p.options.Dir, rec); err != nil {
				return err
			}
			p.watchAdopted(rec)
			p.options.Logger.Sugar().Infow("An agent of an earlier run was taken over", "agent", rec.Spec.ID, "pid",
				rec.PID)
		default:
			removeRecord(p.options.Dir, rec.Spec.ID)
		}
	}
	return nil
}

func (p *Process) watchAdopted(rec record) {
	r := &running{record: rec, ended: make(chan struct{})}
	p.running[rec.Spec.ID] = r
	go func() {
		tick := time.NewTicker(adoptedLook)
		defer tick.Stop()
		for rec.alive() {
			<-tick.C
		}
		p.noteEnd(r, "ended")
	}()
}

// noteEnd keeps how a process ended, until somebody asks or it is of no interest any more.
func (p *Process) noteEnd(r *running, how string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	id := r.Spec.ID
	if p.running[id] == r && !p.closed {
		delete(p.running, id)
		r.Ended, r.EndedAt = how, time.Now()
		removeToken(p.options.Dir, id)
		if !p.asked[id] {
			go p.tellEnd(api.SpawnEnd{AgentID: id, Cluster: r.Spec.Cluster, At: r.EndedAt,
				Reason: "its process " + how, Host: p.host, PID: r.PID})
		}
		if err := writeRecord(p.options.Dir, r.record); err != nil {
			p.options.Logger.Sugar().Warnw("The end of an agent was not recorded", "agent", id, "error", err)
		}
		p.options.Logger.Sugar().Infow("An agent's process has ended", "agent", id, "pid", r.PID, "how", how)
	}
	close(r.ended)
}

// tellEnd reports an end, once nothing that the agent started still runs, or waiting for that has taken too long.
func (p *Process) tellEnd(end api.SpawnEnd) {
	for until := time.Now().Add(leftLimit); ; time.Sleep(leftLook) {
		if end.Gone = !anyCarries(end.AgentID); end.Gone || time.Now().After(until) {
			break
		}
	}
	select {
	case p.ends <- end:
	default: // nobody watches
	}
}

// Spawn implements Spawner.
func (p *Process) Spawn(ctx context.Context, spec cluster.SpawnSpec) (cluster.Spawned, error) {
	if err := CheckSpec(&spec); err != nil {
		return cluster.Spawned{}, err
	}
	release, err := p.turns.Take(ctx, spec.ID)
	if err != nil {
		return cluster.Spawned{}, err
	}
	defer release()
	r, err := p.startOnce(spec)
	if err != nil {
		return cluster.Spawned{}, err
	}
	select {
	case <-r.ended:
		return cluster.Spawned{}, fmt.Errorf("%w: its process %s%s", ErrRefused, r.Ended, p.lastWords(spec.ID))
	case <-ctx.Done():
		return cluster.Spawned{}, ctx.Err()
	case <-time.After(time.Until(r.StartedAt.Add(settleTime))):
		return p.spawned(r), nil
	}
}

// startOnce starts a process, unless that id runs or has run. It writes its intention first, so that the process is
// found again even if this one dies before it has written its number.
func (p *Process) startOnce(spec cluster.SpawnSpec) (*running, error) {
	p.mu.Lock()
	r := p.running[spec.ID]
	p.mu.Unlock()
	if r != nil {
		return r, nil
	}
	before, found, err := readRecord(p.options.Dir, spec.ID)
	if err != nil {
		return nil, err
	}
	if found && before.Ended != "" {
		return nil, fmt.Errorf("%w: its process was started before and %s%s", ErrRefused, before.Ended,
			p.lastWords(spec.ID))
	}
	rec := record{Spec: spec, Command: p.options.Command(spec)}
	if len(rec.Command) == 0 {
		return nil, fmt.Errorf("%w: the spawner has no command for agents", ErrRefused)
	}
	if err := writeRecord(p.options.Dir, rec); err != nil {
		return nil, err
	}
	if r, err = p.start(rec); err != nil {
		removeRecord(p.options.Dir, spec.ID)
		return nil, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return r, nil
}

func (p *Process) spawned(r *running) cluster.Spawned {
	return cluster.Spawned{ID: r.Spec.ID, Cluster: r.Spec.Cluster, Spawner: p.options.Name,
		Platform: api.PlatformProcess,
		Handle:   strconv.Itoa(r.PID), Host: p.host, StartedAt: r.StartedAt.UTC()}
}

// Terminate implements Spawner.
func (p *Process) Terminate(ctx context.Context, id string, graceful bool) error {
	if api.ValidateID("id", id) != nil {
		return nil
	}
	release, err := p.turns.Take(ctx, id)
	if err != nil {
		return err
	}
	defer release()
	p.mu.Lock()
	r := p.running[id]
	p.asked[id] = r != nil
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.asked, id)
	}()
	if r == nil {
		removeRecord(p.options.Dir, id)
		return nil
	}
	if graceful {
		r.terminate()
		select {
		case <-r.ended:
			removeRecord(p.options.Dir, id)
			return nil
		case <-time.After(p.options.StopGrace):
			p.options.Logger.Sugar().Warnw("An agent did not stop in time and is killed", "agent", id, "pid", r.PID,
				"grace", p.options.StopGrace)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	r.kill()
	select {
	case <-r.ended:
		removeRecord(p.options.Dir, id)
		return nil
	case <-time.After(goneLimit):
		return fmt.Errorf("process %d does not end although it was killed", r.PID)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// List implements Spawner.
func (p *Process) List(context.Context) ([]cluster.Spawned, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]cluster.Spawned, 0, len(p.running))
	for _, r := range p.running {
		list = append(list, p.spawned(r))
	}
	SortSpawned(list)
	return list, nil
}

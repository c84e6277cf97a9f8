// Package agent is the library for processes that run tasks. An agent registers with a hub, keeps one long poll open,
// runs what it is assigned with the handler of its type, and reports results until they are accepted. It goes on
// working while no hub can be reached.
//
//	a, err := agent.New(agent.Options{HubURLs: []string{"http://127.0.0.1:8080"}, Cluster: "default", ID: "worker-1"})
//	a.Handle("greet", func(ctx context.Context, t *agent.Task) (any, error) { return "hello", nil })
//	err = a.Run(ctx)
package agent

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"mainstay.dev/sdk/api"
)

// DefaultStopTimeout is how long a graceful stop waits for running handlers by default.
const DefaultStopTimeout = 30 * time.Second

// maxSlots is the most tasks an agent may run at a time.
const maxSlots = 10_000

// Options describe an agent. HubURLs, Cluster and ID are required.
type Options struct {
	// HubURLs are the hubs' base URLs, as "http://hub-1:8080". The agent stays with one until it fails.
	HubURLs []string
	// Cluster is the cluster to join. ID is the agent's own id, unique in the installation. Both are lower-case slugs.
	Cluster, ID string
	// Slots is how many tasks run at a time. Default 1.
	Slots int
	// Capabilities are what tasks may require of an agent.
	Capabilities []string
	// Zone, Group, Version and Metadata describe the agent to operators and to placement. Address is where it can be
	// reached, as host:port; default: the address that it registers from.
	Zone, Group, Version, Address string
	Metadata                      map[string]string
	// Resources are what tasks may ask for with place; DetectResources finds what the machine has. Default: the agent
	// gets no task that asks for any.
	Resources *api.Inventory
	// State is the state that the agent shares with its cluster; nil: none.
	State *State
	// Logger gets the agent's log. Default: no log.
	Logger *slog.Logger
	// GiveUpAfter ends Run with ErrGaveUp when no hub has answered for this long. 0 means never.
	GiveUpAfter time.Duration
	// StopTimeout is how long a graceful stop waits for running handlers before it cancels their contexts and hands
	// their work back. Default 30 s.
	StopTimeout time.Duration
	// TracerProvider makes the spans of attempts. nil means OpenTelemetry's global one, which records nothing unless
	// the program sets one up. Handlers find their span in their context.
	TracerProvider trace.TracerProvider
	// OnEvent is called with each event, from several goroutines. It must return promptly.
	OnEvent func(Event)
	// OnSession is called with each session that a hub opens, for a supervisor of the process; see ProveDeath. nil:
	// there is none.
	OnSession func(Session)
	// JoinToken lets the agent register where the control plane requires a token. It is sent for registering only.
	JoinToken string
	// TLS configures https hub URLs, as for a private certificate authority. nil means the system's defaults.
	TLS *tls.Config
	// DialContext replaces how connections to hubs are opened. nil means TCP with a 3 s timeout.
	DialContext func(ctx context.Context, network, address string) (net.Conn, error)
}

// Agent runs tasks. Make it with New, add handlers, then call Run once.
type Agent struct {
	options  Options
	log      *slog.Logger
	handlers map[string]Handler
	started  atomic.Bool

	mu     sync.Mutex
	run    *run // nil before Run
	health *float64
	note   string
	access api.Providers
}

// New checks the options. It opens no connection.
func New(o Options) (*Agent, error) {
	if len(o.HubURLs) == 0 {
		return nil, errors.New("agent: HubURLs is empty: name at least one hub, as http://127.0.0.1:8080")
	}
	o.HubURLs = slices.Clone(o.HubURLs)
	for i, raw := range o.HubURLs {
		address, err := HubURL(raw)
		if err != nil {
			return nil, fmt.Errorf("agent: HubURLs[%d] %w", i, err)
		}
		o.HubURLs[i] = address
	}
	if err := cmp.Or(api.ValidateID("Cluster", o.Cluster), api.ValidateID("ID", o.ID)); err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	for i, c := range o.Capabilities {
		if err := api.ValidateID(fmt.Sprintf("Capabilities[%d]", i), c); err != nil {
			return nil, fmt.Errorf("agent: %w", err)
		}
	}
	o.Slots = cmp.Or(o.Slots, 1)
	if o.Slots < 1 || o.Slots > maxSlots {
		return nil, fmt.Errorf("agent: Slots must be 1 to %d", maxSlots)
	}
	if o.GiveUpAfter < 0 || o.StopTimeout < 0 {
		return nil, errors.New("agent: GiveUpAfter and StopTimeout must not be negative")
	}
	if err := checkResources(o.Resources); err != nil {
		return nil, err
	}
	o.StopTimeout = cmp.Or(o.StopTimeout, DefaultStopTimeout)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Metadata = withSpawner(o.Metadata, o.ID, os.Getenv)
	return &Agent{options: o, log: o.Logger.With("agent", o.ID), handlers: map[string]Handler{}}, nil
}

// HubURL checks the address of a hub, and completes one without http://.
func HubURL(address string) (string, error) {
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.RawQuery != "" ||
		u.Fragment != "" {
		return "", errors.New("must be like http://host:port")
	}
	return strings.TrimRight(address, "/"), nil
}

// Handle sets the handler of a task type. Call it before Run.
func (a *Agent) Handle(taskType string, h Handler) { a.handlers[taskType] = h }

// Run registers and works until ctx is cancelled, which is a graceful stop: it takes nothing new, finishes its work or
// hands it back, says goodbye and returns nil. It returns ErrFenced when a newer process has the agent's id, ErrRevoked
// when its join token was revoked with its session, ErrGaveUp
// after GiveUpAfter, and an error when the hub refuses the first registration or handlers outlive the stop.
func (a *Agent) Run(ctx context.Context) error {
	if len(a.handlers) == 0 {
		return errors.New("agent: no handlers: call Handle before Run")
	}
	for _, taskType := range a.taskTypes() {
		if err := api.ValidateID("task type", taskType); err != nil {
			return fmt.Errorf("agent: %w", err)
		}
		if a.handlers[taskType] == nil {
			return fmt.Errorf("agent: the handler of task type %q is nil", taskType)
		}
	}
	if !a.started.CompareAndSwap(false, true) {
		return errors.New("agent: Run was called before: make another Agent")
	}
	r := newRun(ctx, a)
	a.mu.Lock()
	a.run = r
	a.mu.Unlock()
	unwatch := context.AfterFunc(ctx, func() { r.stop("the process was asked to stop") })
	defer unwatch()
	return r.finish(r.loop())
}

// Role is the agent's role in its cluster. It is "" before the first role, and when no hub has answered for as long as
// the lease.
func (a *Agent) Role() api.Role {
	a.mu.Lock()
	r := a.run
	a.mu.Unlock()
	if r == nil {
		return ""
	}
	return r.currentRole()
}

// taskTypes are the handled types, sorted.
func (a *Agent) taskTypes() []string { return slices.Sorted(maps.Keys(a.handlers)) }

// withSpawner adds the spawner's name and spawn id to an agent's metadata, by which spawned agents are recognised.
// Processes that a spawned agent starts inherit its environment, but have other ids.
func withSpawner(metadata map[string]string, id string, getenv func(string) string) map[string]string {
	if getenv(api.EnvSpawnID) != id || getenv(api.EnvSpawner) == "" {
		return metadata
	}
	metadata = maps.Clone(metadata)
	if metadata == nil {
		metadata = map[string]string{}
	}
	metadata[api.MetadataSpawner], metadata[api.MetadataSpawnID] = getenv(api.EnvSpawner), id
	return metadata
}

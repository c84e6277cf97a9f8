package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"mainstay.dev/mainstay/internal/controlplane/dev"
	"mainstay.dev/sdk/api"
)

// attack is something that one address sends without end, to use up the control plane.
type attack struct {
	name         string
	method, path string
	role         api.AccessRole // of the token that it has; empty: none
	allTenants   bool           // the token is of no tenant, so it sees what the honest clients submitted
	body         func() []byte  // nil: none
	atOnce       int            // requests at a time
	hold         bool           // the answer is read to its end, which may take a minute
}

// attacked is the result of an attack.
type attacked struct {
	Name string `json:"name"`
	// Answers are how many there were, by status; "cut": the connection ended without one.
	Answers     map[string]int `json:"answers"`
	Honest      Times          `json:"honest_clients"`
	P99Ratio    float64        `json:"p99_ratio"` // to the idle control plane's
	Memory      int64          `json:"peak_memory_bytes"`
	MemoryExtra int64          `json:"memory_above_idle_bytes"`
	CPU         float64        `json:"cpu_percent"` // of a core: the control plane's, with Temporal
}

// honestExpiry is how long the tasks of honest clients wait for an agent that never comes. Their ends cost something,
// too: before the idle control plane is measured, as many tasks end as begin.
const honestExpiry = 5 * time.Second

type attackReport struct {
	report
	Seconds float64    `json:"seconds"` // of each attack
	Idle    attacked   `json:"idle"`
	Attacks []attacked `json:"attacks"`
}

// attackAdmin is the first admin's token of the attacked control plane, which lives for minutes on loopback.
const attackAdmin = "a-token-for-benchmarks-that-protects-nothing"

func attackBenchmark() benchmark {
	var d time.Duration
	var only []string
	var names []string
	for _, a := range attacks("") {
		names = append(names, a.name)
	}
	return benchmark{
		Command: &cobra.Command{
			Use:   "attack",
			Short: "Measure what attacks from one address cost the control plane and its honest clients",
			Long: `Attack a control plane whose security is on, in one way after the other: with large bodies without a
token, and with all that the token of a viewer or an operator of one tenant may send. Beside it two honest clients
submit tasks. Printed are how long these wait, beside an idle control plane's, its memory, and its processor time.`,
			Example: "  mainstay-bench attack\n  mainstay-bench attack --for 10s --only batches,waits",
		},
		flags: func(flags *pflag.FlagSet) {
			flags.DurationVar(&d, "for", time.Minute, "length of each attack")
		},
		only:    &only,
		parts:   names,
		measure: func(ctx context.Context, r *run) error { return r.attack(ctx, only, d) },
	}
}

// attacks are all attacks. task is the id of one that does not end.
func attacks(task string) []attack {
	repeated := func(before, piece string, times int, after string) func() []byte {
		return func() []byte { return []byte(before + strings.Repeat(piece, times) + after) }
	}
	poll := repeated(`{"sequence":1,"running":[`, "{},", 2_790_000, "{}]}") // just below what the routes take
	batch := repeated("[", "{},", 11_180_000, "{}]")
	valid := repeated("[", `{"type":"none","cluster":"default","expires_in":"5s"},`, 999,
		`{"type":"none","cluster":"default","expires_in":"5s"}]`)
	deep := repeated(`{"type":"none","cluster":"default","payload":`, "[", 9990, strings.Repeat("]", 9990)+"}")
	sign := repeated(`{"token":"`, "x", 2_000_000, `"}`)
	return []attack{
		{name: "polls", method: http.MethodPost, path: "/api/v1/agents/x/poll", body: poll, atOnce: 4},
		{name: "sign-ins", method: http.MethodPost, path: "/api/v1/session", body: sign, atOnce: 10},
		{name: "batches", method: http.MethodPost, path: "/api/v1/agents/tasks/batch", role: api.RoleOperator,
			body: batch, atOnce: 4},
		{name: "valid batches", method: http.MethodPost, path: "/api/v1/agents/tasks/batch", role: api.RoleOperator,
			body: valid, atOnce: 4, hold: true},
		{name: "deep tasks", method: http.MethodPost, path: "/api/v1/agents/tasks", role: api.RoleOperator, body: deep,
			atOnce: 4},
		{name: "registrations", method: http.MethodPost, path: "/api/v1/agents/register", role: api.RoleViewer,
			body: repeated(`{"agent_id":"x"}`, "", 0, ""), atOnce: 16},
		{name: "waits", method: http.MethodGet, path: "/api/v1/agents/tasks/" + task + "?wait=60s",
			role: api.RoleViewer, atOnce: 300, hold: true},
		{name: "streams", method: http.MethodGet, path: "/api/v1/agents/events", role: api.RoleViewer, atOnce: 400,
			hold: true},
		{name: "lists", method: http.MethodGet, path: "/api/v1/agents/tasks?page_size=200", role: api.RoleViewer,
			allTenants: true, atOnce: 20},
		{name: "searches", method: http.MethodGet, path: "/api/v1/agents/tasks?text=zz", role: api.RoleViewer,
			allTenants: true, atOnce: 60},
		{name: "overviews", method: http.MethodGet, path: "/api/v1/agents/overview", role: api.RoleViewer, allTenants: true,
			atOnce: 60},
		{name: "agents", method: http.MethodGet, path: "/api/v1/agents", role: api.RoleViewer, allTenants: true, atOnce: 60},
		{name: "queues", method: http.MethodGet, path: "/api/v1/agents/queue", role: api.RoleViewer, allTenants: true,
			atOnce: 60},
		{name: "pasts", method: http.MethodGet, path: "/api/v1/agents/events?since=24h&follow=false", role: api.RoleViewer,
			allTenants: true, atOnce: 60, hold: true},
	}
}

func (r *run) attack(ctx context.Context, only []string, d time.Duration) error {
	i, err := r.install(ctx, Setting{admin: attackAdmin})
	if err != nil {
		return err
	}
	defer i.Stop()
	tokenOf := func(a *attack) (string, error) {
		request := api.TokenRequest{Name: strings.ReplaceAll(a.name, " ", "-"), Role: a.role, Tenant: "acme"}
		switch {
		case a.role == "":
			return "", nil
		case a.allTenants:
			request.Tenant = ""
		}
		made, err := i.Tokens.Create(ctx, request)
		if err != nil {
			return "", err
		}
		return made.Secret, nil
	}
	task, err := i.Tasks.Submit(ctx, &api.TaskRequest{ID: "waits", TaskSpec: api.TaskSpec{Type: "none",
		Cluster: "default", Tenant: "acme", ExpiresIn: api.Duration(24 * time.Hour)}})
	if err != nil {
		return err
	}
	result := attackReport{report: r.report, Seconds: d.Seconds()}
	if result.Idle, err = i.idle(ctx, d); err != nil {
		return err
	}
	for _, a := range attacks(task.ID) {
		if !wanted(only, a.name) {
			continue
		}
		token, err := tokenOf(&a)
		if err != nil {
			return err
		}
		under, err := i.endure(ctx, &a, token, d)
		if err != nil {
			return err
		}
		under.P99Ratio = under.Honest.P99 / result.Idle.Honest.P99
		under.MemoryExtra = under.Memory - result.Idle.Memory
		result.Attacks = append(result.Attacks, under)
		fmt.Fprintf(r.story, "%-16s p99 %6.1f ms (%.1f × idle)  memory %5d MiB  %s\n", a.name, under.Honest.P99,
			under.P99Ratio, under.Memory>>20, ofACore(under.CPU))
		if err := pause(ctx, settle); err != nil {
			return err
		}
	}
	return r.print(result, func(w io.Writer) { writeAttacks(w, &result) })
}

func writeAttacks(w io.Writer, r *attackReport) {
	t := newTable(w, fmt.Sprintf("attack, %.0f s each", r.Seconds), "answers", "honest p50", "honest p99", "p99 / idle",
		"peak memory", "above idle", "processor")
	for _, a := range append([]attacked{r.Idle}, r.Attacks...) {
		var answers []string
		for status, n := range a.Answers {
			answers = append(answers, fmt.Sprintf("%d × %s", n, status))
		}
		slices.Sort(answers)
		t.row(a.Name, strings.Join(answers, ", "), fmt.Sprintf("%.1f ms", a.Honest.P50),
			fmt.Sprintf("%.1f ms", a.Honest.P99), fmt.Sprintf("%.2f", a.P99Ratio),
			fmt.Sprintf("%d MiB", a.Memory>>20), fmt.Sprintf("%d MiB", a.MemoryExtra>>20), ofACore(a.CPU))
	}
	t.flush()
}

// idle watches the control plane and its honest clients without an attack.
func (i *Installation) idle(ctx context.Context, d time.Duration) (attacked, error) {
	nothing := attack{name: "idle"}
	if _, err := i.endure(ctx, &nothing, "", 2*honestExpiry); err != nil {
		return attacked{}, err
	}
	result, err := i.endure(ctx, &nothing, "", d)
	result.P99Ratio = 1
	return result, err
}

// endure attacks for a time, and watches the control plane and its honest clients.
func (i *Installation) endure(ctx context.Context, a *attack, token string, d time.Duration) (attacked, error) {
	result := attacked{Name: a.name, Answers: map[string]int{}}
	ctx, stop := context.WithTimeout(ctx, d)
	defer stop()
	var body []byte
	if a.body != nil {
		body = a.body()
	}
	began, before := time.Now(), cpuTimes(i.plane.PID())
	var mu sync.Mutex
	count := func(status string) {
		mu.Lock()
		result.Answers[status]++
		mu.Unlock()
		if status == "429" || status == "cut" { // as a client does that is no better than it must be
			_ = pause(ctx, 50*time.Millisecond)
		}
	}
	var attackers sync.WaitGroup
	for range a.atOnce {
		attackers.Go(func() {
			for ctx.Err() == nil {
				count(a.send(ctx, i.url, token, body))
			}
		})
	}
	var peak atomic.Int64
	attackers.Go(func() {
		for ctx.Err() == nil {
			if used, err := memory(i.plane.PID()); err == nil && used > peak.Load() {
				peak.Store(used)
			}
			_ = pause(ctx, 100*time.Millisecond)
		}
	})
	answers, err := submitting(ctx, i.Client, 2, 50*time.Millisecond, &api.TaskRequest{TaskSpec: api.TaskSpec{
		Type: "none", Cluster: dev.Cluster, Payload: json.RawMessage(`{"n":1}`), ExpiresIn: api.Duration(honestExpiry)}})
	attackers.Wait()
	if err != nil {
		return result, fmt.Errorf("an honest client, beside %s: %w", a.name, err)
	}
	result.Honest, result.Memory = timesOf(answers), peak.Load()
	result.CPU = 100 * (cpuTimes(i.plane.PID()) - before).Seconds() / time.Since(began).Seconds()
	return result, nil
}

// attackClient is the client of all attackers.
var attackClient = sync.OnceValue(newHTTPClient)

// send sends one request and returns the status of the answer.
func (a *attack) send(ctx context.Context, url, token string, body []byte) string {
	request, err := http.NewRequestWithContext(ctx, a.method, url+a.path, bytes.NewReader(body))
	if err != nil {
		return err.Error()
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+token)
	if token == "" {
		request.Header.Set("Authorization", "Bearer x")
	}
	response, err := attackClient().Do(request)
	if err != nil {
		return "cut"
	}
	defer func() { _ = response.Body.Close() }()
	if a.hold {
		_, _ = io.Copy(io.Discard, response.Body)
	}
	return fmt.Sprint(response.StatusCode)
}

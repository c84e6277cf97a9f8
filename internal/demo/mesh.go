package demo

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/controlplane/dev"
	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/client"
)

const (
	scenarioMesh = "mesh"
	// meshLimit bounds each step.
	meshLimit = 60 * time.Second
	// meshKeyEnv names the variable with the providers' key.
	meshKeyEnv = "DEMO_MODEL_KEY"
	// meshFiles say what the agent may call: the two providers, and a server of tools that it starts.
	meshModels = `providers:
  north: {kind: openai, url: "http://%[1]s/north", key_env: ` + meshKeyEnv + `}
  south: {kind: openai, url: "http://%[1]s/south", key_env: ` + meshKeyEnv + `}
`
	meshTools = "servers: {desk: {command: [%q, demo, tool-server, %q], tools: [open_ticket]}}\n"
	meshJob   = `job: triage
cluster: ` + dev.Cluster + `
on:
  - event: {type: demo.ticket, inputs: {ticket: "${event.data.ticket}", text: "${event.data.text}"}}
steps:
  assess:
    safety: idempotent
    task:
      type: model
      routes: [{provider: north, model: small}, {provider: south, model: small}]
      payload: {messages: [{role: user, content: "Answer {\"severity\": 1, 2 or 3}. ${inputs.text}"}]}
    check:
      rules: [{that: "result.output.severity >= 1 && result.output.severity <= 3", else: "severity must be 1, 2 or 3"}]
      correct: {attempts: 1}
    output: {severity: result.output.severity}
  file:
    after: [assess]
    safety: at_most_once
    task:
      type: mcp-tool
      required_capabilities: [mcp.desk]
      payload:
        server: desk
        tool: open_ticket
        arguments: {ticket: "${inputs.ticket}", severity: "${steps.assess.output.severity}"}
`
)

// meshDemo is two providers of models, one of them down, and the outcome of the events.
type meshDemo struct {
	storyline
	client *client.Client
	ledger string // the file of the server of tools
	north  atomic.Int64
	south  atomic.Int64
}

// meshReport is its result.
type meshReport struct {
	Steps  []demoStep     `json:"steps"`
	Calls  map[string]int `json:"calls"` // of the providers, and of the tool
	Tokens int            `json:"tokens"`
	UIURL  string         `json:"ui_url,omitempty"`
}

func showMesh(ctx context.Context, a *app.App, keep bool) error {
	dir, err := os.MkdirTemp("", "mainstay-mesh-")
	if err != nil {
		return fmt.Errorf("make a folder for the server of tools: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	m := &meshDemo{storyline: storyline{story: a.Storyteller(), begun: time.Now()},
		ledger: filepath.Join(dir, "tickets")}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen as a provider of models: %w", err)
	}
	providers := &http.Server{Handler: m, ReadHeaderTimeout: meshLimit}
	go func() { _ = providers.Serve(listener) }()
	defer func() { _ = providers.Close() }()
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program's file, to start the server of tools: %w", err)
	}
	models, tools := filepath.Join(dir, "models.yaml"), filepath.Join(dir, "tools.yaml")
	if err := errors.Join(os.Setenv(meshKeyEnv, rand.Text()),
		os.WriteFile(models, fmt.Appendf(nil, meshModels, listener.Addr()), 0o600),
		os.WriteFile(tools, fmt.Appendf(nil, meshTools, program, m.ledger), 0o600)); err != nil {
		return fmt.Errorf("write what the agent may call: %w", err)
	}
	o := dev.Aside(1, demoSlots)
	o.AgentArgs, o.QuietAgents = []string{"--models", models, "--mcp", tools}, true
	d, err := start(ctx, a, o)
	if err != nil {
		return err
	}
	defer d.Stop()
	if m.client, err = d.Connect(""); err != nil {
		return err
	}
	if _, err := m.client.Jobs.Apply(ctx, "triage", []byte(meshJob), ""); err != nil {
		return err
	}
	m.tell("An agent may call two providers of models, north and south, and the tools of a server, desk",
		"the keys are in the agent alone; north is down")
	report := meshReport{UIURL: d.WorkflowsURL()}
	if report.Tokens, err = m.run(ctx); err != nil {
		return err
	}
	filed, err := os.ReadFile(m.ledger)
	if err != nil {
		return fmt.Errorf("read what the tool was called with: %w", err)
	}
	report.Steps = m.steps
	report.Calls = map[string]int{"north": int(m.north.Load()), "south": int(m.south.Load()),
		"open_ticket": strings.Count(string(filed), "\n")}
	err = a.Print(report, func() error {
		fmt.Fprintf(a.Stdout, "\nCalls as those who were called count them; the models took %d tokens.\n\n", report.Tokens)
		t := app.NewTable(a.Stdout, "WHO", "CALLS")
		for _, name := range []string{"north", "south", "open_ticket"} {
			t.Row(name, fmt.Sprint(report.Calls[name]))
		}
		return t.Flush()
	})
	if err != nil {
		return err
	}
	keepDemo(ctx, a, keep, &demoReport{UIURL: report.UIURL})
	return nil
}

// ServeHTTP answers as two providers of models do. North is down. South gives a wrong answer first, and of one ticket
// always.
func (m *meshDemo) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/north/") {
		m.north.Add(1)
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte(`{"error": {"message": "we are down"}}`))
		return
	}
	m.south.Add(1)
	var in struct{ Messages []struct{ Content string } }
	severity := 7
	if json.NewDecoder(r.Body).Decode(&in) == nil && len(in.Messages) > 1 &&
		!strings.Contains(in.Messages[0].Content, "odd") {
		severity = 2
	}
	_, _ = fmt.Fprintf(w, `{"id": "call-%d", "model": "small-1", "usage": {"prompt_tokens": 20, "completion_tokens": 5},
		"choices": [{"message": {"content": "{\"severity\": %d}"}, "finish_reason": "stop"}]}`, m.south.Load(), severity)
}

// run sends two events, one of them twice, and reports their outcome. It returns how many tokens the models took.
func (m *meshDemo) run(ctx context.Context) (tokens int, err error) {
	first, err := m.send(ctx, "T-1", "The printer burns.")
	if err != nil {
		return 0, err
	}
	if again, err := m.client.Inbound.Send(ctx, event("T-1", "The printer burns.")); err != nil || !again.Duplicate {
		return 0, errors.Join(err, errors.New("the same event was taken twice"))
	}
	m.tell("The event of T-1 is sent again", "it is known by its source and id; nothing begins")
	second, err := m.send(ctx, "T-2", "Something is odd.")
	if err != nil {
		return 0, err
	}
	if second.Status != api.RunBlocked {
		return 0, fmt.Errorf("the run of T-2 is %s: %s", second.Status, second.Why)
	}
	m.tell("T-2 waits for a person", second.Entry("assess").Why)
	_, err = m.client.Runs.Step(ctx, second.ID, "assess", api.CompleteStep,
		api.StepRequest{Output: json.RawMessage(`{"severity": 3}`), Reason: "it is odd, no more"})
	if err != nil {
		return 0, err
	}
	m.tell("A person, here this script, decides: severity 3", "")
	if second, err = m.await(ctx, second.ID); err != nil {
		return 0, err
	}
	m.filed("T-2", second)
	return first.Tokens + second.Tokens, nil
}

func event(ticket, text string) []byte {
	return fmt.Appendf(nil, `{"specversion": "1.0", "id": %q, "source": "/desk", "type": "demo.ticket",
		"data": {"ticket": %q, "text": %q}}`, ticket, ticket, text)
}

// send sends the event of a ticket, and reports on its run until that has ended or needs a person.
func (m *meshDemo) send(ctx context.Context, ticket, text string) (*api.Run, error) {
	sent, err := m.client.Inbound.Send(ctx, event(ticket, text))
	if err != nil {
		return nil, err
	}
	var known *api.Inbound
	err = app.Await(ctx, meshLimit, func() (bool, error) {
		known, err = m.client.Inbound.Get(ctx, sent.ID)
		return err == nil && known.Status == api.InboundDispatched, err
	})
	if err != nil || known.Status != api.InboundDispatched {
		return nil, errors.Join(err, fmt.Errorf("event %s was not dispatched", ticket))
	}
	m.tell("An event comes in: "+ticket+", "+text, "it starts run "+known.Dispatches[0].ID)
	run, err := m.await(ctx, known.Dispatches[0].ID)
	if err != nil {
		return nil, err
	}
	assess := run.Entry("assess")
	for i := range assess.Attempts {
		a := &assess.Attempts[i]
		if a.Route == nil || a.Outcome != api.AttemptCompleted {
			m.tell(fmt.Sprintf("%s: call %d fails, and the next route is tried", ticket, a.Number), a.Reason)
			continue
		}
		m.tell(fmt.Sprintf("%s: call %d is answered by %s", ticket, a.Number, a.Route.Provider), "")
		if c := job.CorrectionOf(assess, a.Number); c != nil {
			m.tell(ticket+": the step's check does not accept that", strings.Join(c.Errors, "; "))
		}
	}
	m.filed(ticket, run)
	return run, nil
}

// filed reports the call of the tool, if there was one.
func (m *meshDemo) filed(ticket string, run *api.Run) {
	if e := run.Entry("file"); e.Status == api.StepCompleted {
		m.tell(ticket+": the tool open_ticket is called, at most once", "by an agent that keeps its server open")
	}
}

// await returns a run that has ended or needs a person.
func (m *meshDemo) await(ctx context.Context, id string) (*api.Run, error) {
	run, err := m.client.Runs.Get(ctx, id, meshLimit)
	if err == nil && run.Status != api.RunCompleted && run.Status != api.RunBlocked {
		err = app.WithExit(app.ExitIncomplete, fmt.Errorf("run %s is %s: %s", id, run.Status, run.Why))
	}
	return run, err
}

// toolServer is the server of tools of the scenario: a process that the agent starts.
func toolServer(a *app.App) *cobra.Command {
	type ticket struct {
		Ticket   string `json:"ticket"`
		Severity int    `json:"severity"`
	}
	return &cobra.Command{Use: "tool-server", Hidden: true, Args: app.Exactly("FILE"),
		Short: "Serve the tool of the demo's scenario mesh", Example: "  mainstay demo tool-server tickets.jsonl",
		RunE: func(c *cobra.Command, args []string) error {
			server := mcp.NewServer(&mcp.Implementation{Name: "desk", Version: a.Version}, nil)
			mcp.AddTool(server, &mcp.Tool{Name: "open_ticket", Description: "opens a ticket"},
				func(_ context.Context, _ *mcp.CallToolRequest, in ticket) (*mcp.CallToolResult, any, error) {
					file, err := os.OpenFile(args[0], os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
					if err != nil {
						return nil, nil, err
					}
					_, err = fmt.Fprintf(file, "%s %d\n", in.Ticket, in.Severity)
					return nil, in, errors.Join(err, file.Close())
				})
			return server.Run(c.Context(), &mcp.StdioTransport{})
		}}
}

// Package demo is `mainstay demo`, which shows Mainstay on real work.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/controlplane/dev"
	"mainstay.dev/sdk/api"
)

// demoSlots is how many tasks each agent of the demo runs at a time.
const demoSlots = 4

// demoReport is the result of the demo.
type demoReport struct {
	Folder    string      `json:"folder"`
	Files     int         `json:"files"`
	Bytes     int64       `json:"bytes"`
	Elements  int         `json:"elements"`
	Took      string      `json:"took"`
	PerSecond float64     `json:"elements_per_second"`
	Agents    []demoShare `json:"agents"`
	Remote    string      `json:"digest_by_agents"`
	Local     string      `json:"digest_here"`
	Equal     bool        `json:"equal"`
	Killed    *demoKill   `json:"killed,omitempty"`
	UIURL     string      `json:"ui_url,omitempty"`
}

// Command is `demo`.
func Command(a *app.App) *cobra.Command {
	var path, scenario string
	var agents int
	var keep bool
	command := &cobra.Command{
		Use:   "demo",
		Short: "Show it on real work: agents digest every file of a folder",
		Long: `Show it on real work. The demo starts a Temporal, a control plane and agents of its own on free ports, lets the agents
digest (SHA-256) every file of a folder, kills one of them in the middle, and compares what they found with its own
computation. It leaves nothing behind.

With --scenario healing it shows instead how the fleet looks after itself: one agent hangs, another reports that it is
degraded; both are noticed, their work goes on elsewhere, and they are replaced.

With --scenario mesh events from outside start runs that call a model and a tool. One provider of models is down, an
answer is corrected, a person decides about another, and the tool is called once. It needs no key: the demo is the
provider, and the agent starts the server of tools.`,
		Example: "  mainstay demo\n  mainstay demo --scenario healing\n  mainstay demo --scenario mesh\n" +
			"  mainstay demo --path ~/src/project --agents 5 --keep",
		Args: app.Exactly(),
		RunE: func(c *cobra.Command, _ []string) error {
			if agents < 1 || agents > 100 {
				return app.UsageError("--agents must be 1 to 100")
			}
			if scenario != scenarioFailover && (c.Flags().Changed("path") || c.Flags().Changed("agents")) {
				return app.UsageError("--path and --agents belong to --scenario failover")
			}
			switch scenario {
			case scenarioFailover:
				return showFailover(c.Context(), a, path, agents, keep)
			case scenarioHealing:
				return showHealing(c.Context(), a, keep)
			case scenarioMesh:
				return showMesh(c.Context(), a, keep)
			}
			return app.UsageError("--scenario must be failover, healing or mesh")
		},
	}
	command.PersistentPreRunE = a.StopUnread
	flags := command.Flags()
	flags.StringVar(&path, "path", "",
		"folder to digest (default: the tracked files of the current repository, else the current folder)")
	flags.IntVar(&agents, "agents", 3, "agents to run")
	flags.StringVar(&scenario, "scenario", scenarioFailover, "what to show: failover, healing or mesh")
	app.Complete(command, "scenario", scenarioFailover, "healing", "mesh")
	flags.BoolVar(&keep, "keep", false, "keep it running at the end, to look around in the Web UI")
	a.OutputFlag(command)
	command.AddCommand(toolServer(a))
	return command
}

func showFailover(ctx context.Context, a *app.App, path string, agents int, keep bool) error {
	folder, err := demoFolder(ctx, path)
	if err != nil {
		return err
	}
	files, err := demoFiles(ctx, folder)
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return app.UsageError("there are no files in %s", folder)
	}
	story := a.Storyteller()
	begun := time.Now()
	o := dev.Aside(agents, demoSlots)
	o.DemoRoot, o.Open = folder, true
	d, err := start(ctx, a, o)
	if err != nil {
		return err
	}
	defer d.Stop()
	fmt.Fprintf(story, "All is up after %s:", app.Roughly(time.Since(begun)))
	report := d.Report()
	for _, agent := range report.Agents {
		fmt.Fprintf(story, " %s (pid %d)", agent.ID, agent.PID)
	}
	fmt.Fprintln(story)
	server, err := d.Connect("")
	if err != nil {
		return err
	}
	run := demoRun{client: server, story: story, tty: a.StdoutTTY && !a.JSON(), kill: d.KillAgent}
	result, err := run.do(ctx, folder, files)
	if err != nil {
		return err
	}
	result.UIURL = d.WorkflowsURL()
	if err := a.Print(result, func() error { return result.write(a.Stdout) }); err != nil {
		return err
	}
	keepDemo(ctx, a, keep, result)
	if !result.Equal {
		return errors.New("the digests differ: has a file changed meanwhile?")
	}
	return nil
}

// start runs a `dev` beside any other, and returns when its agents are online.
func start(ctx context.Context, a *app.App, o dev.Options) (*dev.Run, error) {
	fmt.Fprintf(a.Storyteller(), "Starting Temporal, the control plane and %s…\n", api.Count(o.Agents, "agent"))
	d, err := dev.Start(ctx, a, o)
	if err != nil {
		return nil, err
	}
	force := d.Kill
	a.AtForce.Store(&force)
	if !d.AwaitAgents(ctx) {
		d.Stop()
		return nil, errors.Join(ctx.Err(), errors.New("the agents did not come online in time"))
	}
	return d, nil
}

func keepDemo(ctx context.Context, a *app.App, keep bool, r *demoReport) {
	story := a.Storyteller()
	if !keep {
		fmt.Fprintln(story, "All of it is in the Temporal Web UI; to look at it, add --keep.")
		return
	}
	fmt.Fprintf(story, "All of it is in the Temporal Web UI, see %s\nIt goes on running. Ctrl-C ends it.\n", r.UIURL)
	<-ctx.Done()
}

func (r *demoReport) write(w io.Writer) error {
	fmt.Fprintf(w, "\n%s with %s (%s) in %s: %.0f a second\n\n", api.Count(r.Elements, "element"),
		api.Count(r.Files, "file"), app.ByteCount(r.Bytes), r.Took, r.PerSecond)
	t := app.NewTable(w, "AGENT", "ELEMENTS", "FILES", "BYTES")
	for _, s := range r.Agents {
		t.Row(s.Agent, strconv.Itoa(s.Elements), strconv.Itoa(s.Files), app.ByteCount(s.Bytes))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	if err := r.Killed.write(w, r.Elements); err != nil {
		return err
	}
	verdict := "EQUAL"
	if !r.Equal {
		verdict = "DIFFERENT"
	}
	_, err := fmt.Fprintf(w, "\nDigest of all files, by the agents  %s\nDigest of all files, computed here  %s  %s\n\n",
		r.Remote, r.Local, verdict)
	return err
}

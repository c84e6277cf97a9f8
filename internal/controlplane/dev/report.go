package dev

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/sdk/api"
)

// Report is what `dev` says when all is up.
type Report struct {
	URL       string  `json:"url"`
	DocsURL   string  `json:"docs_url"`
	UIURL     string  `json:"ui_url,omitempty"`
	Temporal  string  `json:"temporal_address"`
	Namespace string  `json:"namespace"`
	DataDir   string  `json:"data_dir,omitempty"`
	Logs      string  `json:"logs"`
	Hub       string  `json:"hub"`
	Cluster   string  `json:"cluster"`
	Agents    []Agent `json:"agents"`
	Slots     int     `json:"slots"`
	// Containers is how many agents are containers, and Image what they run.
	Containers int    `json:"containers,omitempty"`
	Image      string `json:"image,omitempty"`
	Exec       bool   `json:"allow_exec"`
	Security   bool   `json:"security"`
	// AdminTokenFile and JoinTokenFile are where the tokens are that `dev` has made.
	AdminTokenFile string `json:"admin_token_file,omitempty"`
	JoinTokenFile  string `json:"join_token_file,omitempty"`
	// TemporalKeyFile has the key that Temporal asks for while security is on.
	TemporalKeyFile string `json:"temporal_key_file,omitempty"`
	// OpenTemporal: others than this machine can reach Temporal.
	OpenTemporal bool `json:"temporal_open_to_others,omitempty"`
}

// Agent is the process of one agent.
type Agent struct {
	ID  string `json:"id"`
	PID int    `json:"pid"`
}

// Report says what runs.
func (d *Run) Report() Report {
	r := Report{
		URL: d.URL, DocsURL: d.URL + "/docs", UIURL: d.ui.address(),
		Temporal: d.Temporal.Address(), Namespace: d.Temporal.Namespace(),
		Logs:    filepath.Join(d.dir, "logs"),
		Hub:     d.hubID,
		Cluster: Cluster,
		Agents:  []Agent{},
		Slots:   d.slots,
		Exec:    d.exec,

		Containers: d.containers,
		Image:      d.image,
	}
	r.Security, r.OpenTemporal = d.tokens.Admin != "", !onlyHere(d.Temporal.Address())
	r.AdminTokenFile, r.JoinTokenFile = d.madeToken(adminTokenName, d.tokens.Admin), d.madeToken(joinTokenName,
		d.tokens.Join)
	if r.Security {
		r.TemporalKeyFile = filepath.Join(d.dir, temporalKeyName)
	}
	if !d.temporary {
		r.DataDir = d.dir
	}
	pids := d.agents.pids()
	for _, id := range d.IDs {
		if pid, running := pids[id]; running {
			r.Agents = append(r.Agents, Agent{id, pid})
		}
	}
	return r
}

// WorkflowsURL is where the Web UI lists the workflows.
func (d *Run) WorkflowsURL() string {
	return d.ui.address() + "/namespaces/" + d.Temporal.Namespace() + "/workflows"
}

// KillAgent ends one agent's process, as a crash would, and returns its process; false when it does not run now.
func (d *Run) KillAgent(id string) (pid int, killed bool) { return d.agents.killOne(id) }

func reportDev(a *app.App, d *Run) error {
	r := d.Report()
	return a.Print(r, func() error { return r.write(a.Stdout, app.ProgramName()) })
}

// write shows the report to a person; program is how the person calls this program.
func (r *Report) write(w io.Writer, program string) error {
	var b strings.Builder
	row := func(name, text string) { fmt.Fprintf(&b, "  %-10s %s\n", name, text) }
	b.WriteString("Mainstay is running. Ctrl-C stops it.\n\n")
	row("Fleet page", r.URL+"/")
	row("REST API", r.URL+"  (described at "+r.DocsURL+")")
	if r.UIURL != "" {
		row("Web UI", r.UIURL+"  (of Temporal)")
	}
	row("Temporal", r.Temporal+", namespace "+r.Namespace)
	if r.DataDir != "" {
		row("Data", r.DataDir)
	} else {
		row("Data", "in memory, gone at the end")
	}
	row("Logs", r.Logs)
	row("Cluster", r.Cluster)
	for i, agent := range r.Agents {
		name := ""
		if i == 0 {
			name = "Agents"
		}
		row(name, fmt.Sprintf("%-10s pid %-8d %d tasks at a time", agent.ID, agent.PID, r.Slots))
	}
	if r.Containers > 0 {
		row("Agents", fmt.Sprintf("%s of image %s", api.Count(r.Containers, "container"), r.Image))
	}
	r.writeSecurity(row)
	server := ""
	if r.URL != app.DefaultServer {
		server = " --server " + r.URL
	}
	b.WriteString("\nTry in another terminal:\n")
	switch {
	case r.AdminTokenFile != "":
		fmt.Fprintf(&b, "  export MAINSTAY_TOKEN=$(cat %s)\n", r.AdminTokenFile)
	case r.Security:
		b.WriteString("  export MAINSTAY_TOKEN=<the admin token>\n")
	}
	if len(r.Agents)+r.Containers > 0 && r.Exec {
		fmt.Fprintf(&b, "  %s task submit%s --wait -- echo hello\n", program, server)
	}
	fmt.Fprintf(&b, "  %s agent list%s\n", program, server)
	switch {
	case r.Containers > 0:
		fmt.Fprintf(&b, "  %s spawner list%s\n", program, server)
	case len(r.Agents) > 0:
		fmt.Fprintf(&b, "  kill -9 %d    (its work moves to another agent, and it is started again)\n", r.Agents[0].PID)
	default:
		join := ""
		if r.JoinTokenFile != "" {
			join = " --join-token-file " + r.JoinTokenFile
		}
		fmt.Fprintf(&b, "  %s agent run --hub %s --id my-agent --allow-exec%s\n", program, r.URL, join)
	}
	fmt.Fprintf(&b, "  %s demo\n\n", program)
	_, err := io.WriteString(w, b.String())
	return err
}

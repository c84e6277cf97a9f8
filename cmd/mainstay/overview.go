package main

import (
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/diagnosis"
	"mainstay.dev/mainstay/fleet"
)

// overviewPath answers how the whole fleet stands.
const overviewPath = agentsPath + "/overview"

func (a *app) overviewCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "overview",
		Short: "Show whether anything is wrong, where, and since when",
		Long: `Show whether anything is wrong with the fleet: what, where, since when, why, and what can be done. It ends with 0
whatever is wrong; a script looks at "problems" of -o json.

The fleet page, at the address of the REST API, shows the same and more in a browser.`,
		Example: "  mainstay overview\n  mainstay overview -o json",
		Args:    exactly(),
		RunE: func(c *cobra.Command, _ []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			var o api.Overview
			raw, err := client.call(c.Context(), http.MethodGet, overviewPath, 0, nil, &o)
			if err != nil {
				return err
			}
			return a.print(raw, func() error { return a.printOverview(&o) })
		},
	}
	a.serverFlag(command)
	a.outputFlag(command)
	return command
}

func (a *app) printOverview(o *api.Overview) error {
	if len(o.Problems) == 0 {
		fmt.Fprintln(a.stdout, "Nothing is wrong.")
	}
	for i := range o.Problems {
		a.printProblem(&o.Problems[i])
	}
	fmt.Fprintf(a.stdout, "\n%s online, %d suspect, %d lost; %d of %d slots busy; %s, %d in review, %s\n\n",
		fleet.Count(o.Agents.Online, "agent"), o.Agents.Suspect, o.Agents.Offline, o.Agents.Running, o.Agents.Slots,
		fleet.Count(o.Tasks.Open, "open task"), o.Tasks.Review, fleet.Count(o.Tasks.DeadLetter, "dead letter"))
	waiting := map[string]int64{}
	for i := range o.Lanes {
		waiting[o.Lanes[i].Cluster] += o.Lanes[i].Depth
	}
	t := newTable(a.stdout, "CLUSTER", "STATUS", "AGENTS", "MODE", "LEADER", "WAITING")
	for i := range o.Clusters {
		c := &o.Clusters[i]
		agents := fmt.Sprintf("%d of %d", c.HealthyAgentCount, c.AgentCount)
		if c.Status == fleet.ClusterUnknown { // nobody could be asked
			agents = "?"
		}
		t.row(c.Name, string(c.Status), agents, string(c.ReplicationMode), c.Leader, fmt.Sprint(waiting[c.Name]))
	}
	if err := t.flush(); err != nil {
		return err
	}
	for _, part := range o.Missing {
		fmt.Fprintf(a.stdout, "Could not be read this time: %s\n", oneLine(part))
	}
	return nil
}

func (a *app) printProblem(p *diagnosis.Problem) {
	line := fmt.Sprintf("%-8s  %s", p.Severity, oneLine(p.What))
	if p.Since != nil {
		line += ", since " + a.ago(p.Since)
	}
	fmt.Fprintln(a.stdout, line)
	for _, more := range []string{p.Why, p.Do} {
		if more != "" {
			fmt.Fprintf(a.stdout, "          %s\n", oneLine(more))
		}
	}
}

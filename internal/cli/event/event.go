// Package event has the command that shows what happens in the fleet.
package event

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/client"
)

// eventsView is the command line of `events`, and where it is in the stream.
type eventsView struct {
	app    *app.App
	server *app.Client
	query  client.EventQuery
	follow bool

	day string // that the last line was of
}

// Command shows events.
func Command(a *app.App) *cobra.Command {
	v := &eventsView{app: a}
	command := a.Call(&cobra.Command{
		Use:   "events [-f]",
		Short: "Show what happens in the fleet",
		Long: `Show what happens in the fleet: agents that join, are suspect, lost or back, leaders, failovers, drains,
and what becomes of tasks and runs. Without --follow, what happened lately; with it, what happens from now on, until
Ctrl-C.

A line begins with the time in UTC. With -o json each line is a CloudEvent. When the control plane is away, following
goes on after what was seen once it is back; a line of type gap says where events are missing.`,
		Example: `  mainstay events -f
  mainstay events -f --type agent,failover,leader
  mainstay events --since 1h --task t-06…`,
		Args: app.Exactly(),
	}, func(ctx context.Context, s *app.Client, _ []string) error {
		if v.query.Once = !v.follow; v.query.Once && v.query.Since == "" {
			v.query.Since = "15m"
		}
		v.server, v.query.Since = s, strings.TrimPrefix(v.query.Since, "-")
		return v.show(ctx)
	})
	flags := command.Flags()
	flags.BoolVarP(&v.follow, "follow", "f", false, "go on with what happens")
	flags.StringVar(&v.query.Since, "since", "",
		"begin with what happened since then: 15m, or a time (RFC 3339) (default 15m, with --follow now)")
	flags.StringSliceVar(&v.query.Types, "type", nil,
		"only these types, or what begins with them: agent, task.completed, failover")
	flags.StringSliceVar(&v.query.Clusters, "cluster", nil, "only of these clusters")
	flags.StringVar(&v.query.Agent, "agent", "", "only about this agent")
	flags.StringVar(&v.query.Task, "task", "", "only about this task")
	flags.StringVar(&v.query.Tenant, "tenant", "", "only about this tenant's tasks")
	a.ServerFlag(command)
	return command
}

// show prints the events until they end.
func (v *eventsView) show(ctx context.Context) error {
	v.query.Reached = func(reached bool) {
		text := "the control plane does not answer; trying again"
		if reached {
			text = "connected again"
		}
		fmt.Fprintln(v.app.Stderr, "["+text+"]")
	}
	for event, err := range v.server.Events(ctx, v.query) {
		if v.follow && ctx.Err() != nil {
			return nil // Ctrl-C is how following ends
		}
		if err == nil {
			err = v.print(event)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (v *eventsView) print(e *api.CloudEvent) error {
	if v.app.JSON() {
		return v.app.Sayf("%s\n", v.server.Answer)
	}
	at := e.Time.UTC()
	if day := at.Format(time.DateOnly); day != v.day {
		if v.day != "" || day != v.app.Now().UTC().Format(time.DateOnly) {
			if err := v.app.Sayf("--- %s\n", day); err != nil {
				return err
			}
		}
		v.day = day
	}
	return v.app.Sayf("%s  %-18s %s\n", app.ExactClock(at), shortType(e.Type), app.OneLine(eventText(e)))
}

func shortType(t api.EventType) string {
	return strings.TrimPrefix(string(t), api.EventPrefix)
}

package event

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/client"
	"mainstay.dev/mainstay/fleet"
)

const (
	eventsPath = "/api/v1/agents/events"
	// eventSilence is how long a stream may say nothing, not even that it is alive, before another is opened.
	eventSilence = 45 * time.Second
	// eventRetry and eventRetryMax space the attempts to reach the control plane again.
	eventRetry    = 250 * time.Millisecond
	eventRetryMax = 5 * time.Second
	// eventsSeen is how many events are remembered, to drop those that come again after a reconnect.
	eventsSeen = 20_000
)

// eventsView is the command line of `events`, and where it is in the stream.
type eventsView struct {
	app    *app.App
	client *app.Client
	follow bool
	since  string
	query  url.Values

	last string // the newest id
	seen map[string]bool
	old  []string // of seen, oldest first
	day  string   // that the last line was of
	told string   // what was last said beside the events
}

func Command(a *app.App) *cobra.Command {
	v := &eventsView{app: a, seen: map[string]bool{}}
	var types, clusters []string
	var agent, task, tenant string
	command := &cobra.Command{
		Use:   "events [-f]",
		Short: "Show what happens in the fleet",
		Long: `Show what happens in the fleet: agents that join, are suspect, lost or back, leaders, failovers, drains, and what
becomes of tasks. Without --follow, what happened lately; with it, what happens from now on, until Ctrl-C.

A line begins with the local time. With -o json each line is a CloudEvent. When the control plane is away, following goes
on after what was seen once it is back; a line of type gap says where events are missing.`,
		Example: `  mainstay events -f
  mainstay events -f --type agent,failover,leader
  mainstay events --since 1h --task t-06…`,
		Args: app.Exactly(),
		RunE: func(c *cobra.Command, _ []string) error {
			client, err := a.Client()
			if err != nil {
				return err
			}
			v.client = client
			v.query = app.Query("agent", agent, "task", task, "tenant", tenant)
			for _, t := range types {
				v.query.Add("type", t)
			}
			for _, name := range clusters {
				v.query.Add("cluster", name)
			}
			if !v.follow {
				v.query.Set("follow", "false")
				if v.since == "" {
					v.since = "15m"
				}
			}
			return v.show(c.Context())
		},
	}
	flags := command.Flags()
	flags.BoolVarP(&v.follow, "follow", "f", false, "go on with what happens")
	flags.StringVar(&v.since, "since", "", "begin with what happened since then: 15m, or a time (RFC 3339) (default 15m, with --follow now)")
	flags.StringSliceVar(&types, "type", nil, "only these types, or what begins with them: agent, task.completed, failover")
	flags.StringSliceVar(&clusters, "cluster", nil, "only of these clusters")
	flags.StringVar(&agent, "agent", "", "only about this agent")
	flags.StringVar(&task, "task", "", "only about this task")
	flags.StringVar(&tenant, "tenant", "", "only about this tenant's tasks")
	a.ServerFlag(command)
	a.OutputFlag(command)
	return command
}

// show reads one stream, or one after the other while it follows.
func (v *eventsView) show(ctx context.Context) error {
	reached := false
	for wait := eventRetry; ; {
		connected, err := v.read(ctx)
		switch {
		case ctx.Err() != nil:
			if v.follow {
				return nil // Ctrl-C is how following ends
			}
			return context.Canceled
		case !v.follow || !reached && !connected:
			return err
		case err != nil && app.ExitCode(err) != app.ExitUnreachable:
			return err
		}
		reached = true
		if connected {
			wait = eventRetry
		} else {
			v.say("the control plane does not answer; trying again")
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil
		}
		wait = min(2*wait, eventRetryMax)
	}
}

// read shows one stream to its end. It reports whether there was one.
func (v *eventsView) read(ctx context.Context) (connected bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(eventSilence, func() { cancel(fmt.Errorf("silent for %s", eventSilence)) })
	defer silence.Stop()
	query := v.query
	if v.last == "" && v.since != "" {
		query = url.Values{"since": {strings.TrimPrefix(v.since, "-")}}
		for name, values := range v.query {
			query[name] = values
		}
	}
	body, err := v.client.Stream(ctx, eventsPath+"?"+query.Encode(), v.last)
	if err != nil {
		return false, err
	}
	defer func() { _ = body.Close() }()
	if v.told != "" {
		v.say("connected again")
		v.told = ""
	}
	reader := client.NewEventReader(&sounding{body, func() { silence.Reset(eventSilence) }})
	for {
		raw, event, err := reader.Next()
		v.last = reader.LastID
		switch {
		case errors.Is(err, io.EOF):
			return true, nil
		case err != nil:
			return true, v.client.Unreachable(ctx, err)
		}
		if err := v.print(raw, event); err != nil {
			return true, err
		}
	}
}

// sounding calls heard whenever something is read.
type sounding struct {
	io.Reader
	heard func()
}

func (s *sounding) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if n > 0 {
		s.heard()
	}
	return n, err
}

// print shows an event once.
func (v *eventsView) print(raw json.RawMessage, e *api.CloudEvent) error {
	if v.seen[e.ID] {
		return nil
	}
	v.seen[e.ID] = true
	if v.old = append(v.old, e.ID); len(v.old) > eventsSeen {
		delete(v.seen, v.old[0])
		v.old = v.old[1:]
	}
	if v.app.JSON() {
		_, err := fmt.Fprintf(v.app.Stdout, "%s\n", raw)
		return err
	}
	at := e.Time.Local()
	if day := at.Format(time.DateOnly); day != v.day {
		if v.day != "" || day != v.app.Now().Local().Format(time.DateOnly) {
			if _, err := fmt.Fprintf(v.app.Stdout, "--- %s\n", day); err != nil {
				return err
			}
		}
		v.day = day
	}
	_, err := fmt.Fprintf(v.app.Stdout, "%s  %-18s %s\n", at.Format("15:04:05.000"), shortType(e.Type), app.OneLine(eventText(e)))
	return err
}

// say says something beside the events, once in a row.
func (v *eventsView) say(text string) {
	if v.told != text {
		fmt.Fprintln(v.app.Stderr, "["+app.OneLine(text)+"]")
	}
	v.told = text
}

func shortType(t fleet.EventType) string {
	if len(t) > len(fleet.EventPrefix) {
		return string(t[len(fleet.EventPrefix):])
	}
	return string(t)
}

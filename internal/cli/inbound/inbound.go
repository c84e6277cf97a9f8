// Package inbound has the commands of events from outside.
package inbound

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/textfile"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/client"
)

// Commands are the groups: events that are sent, that were received, and that are in quarantine.
func Commands(a *app.App) []*cobra.Command {
	r := &app.Resource[client.Inbound]{App: a, Of: func(c *client.Client) client.Inbound { return c.Inbound },
		ID: "an event's id", Title: "Event", Reason: "why; kept with the event"}
	list := func(
		example string, flags func(*cobra.Command, *client.InboundQuery),
		list func(client.Inbound, client.InboundQuery) *client.List[api.InboundEvent],
	) *cobra.Command {
		command := &cobra.Command{Use: "list", Short: "List events, newest first", Example: example}
		return app.List(r, command, flags, list, printEvents)
	}
	get := func(
		short string, get func(client.Inbound, context.Context, string) (*api.Inbound, error),
	) *cobra.Command {
		return app.Get(r, &cobra.Command{Use: "get EVENT", Short: short, Example: "  mainstay inbound get 5a2c…"}, get,
			printEvent)
	}
	return []*cobra.Command{
		a.GroupOf(&cobra.Command{Use: "event", Short: "Send events, which start tasks and runs of jobs"}, sendCommand(a)),
		a.GroupOf(&cobra.Command{Use: "inbound", Short: "See what became of events from outside"},
			list("  mainstay inbound list --status unmatched", func(c *cobra.Command, q *client.InboundQuery) {
				listFlags(c, q)
				c.Flags().StringVar((*string)(&q.Status), "status", "",
					"only with this status: received, dispatched, unmatched, quarantined or discarded")
			}, client.Inbound.List),
			get("Show an event and what became of it", client.Inbound.Get)),
		a.GroupOf(
			&cobra.Command{Use: "quarantine", Short: "Decide about events that could not be dispatched, or whose work died"},
			list("  mainstay quarantine list", listFlags, client.Inbound.Quarantine),
			get("Show an event in quarantine, and why it is there", client.Inbound.Quarantined),
			replayCommand(r),
			app.Tell(r, &cobra.Command{
				Use: "discard EVENT", Short: "Give an event up",
				Example: "  mainstay quarantine discard 5a2c… --reason \"sent by mistake\"",
			}, r.ReasonFlag, func(e client.Inbound, ctx context.Context, id, reason string) (*api.Inbound, error) {
				if reason == "" {
					return nil, app.UsageError("needs --reason: why the event is given up")
				}
				return e.Discard(ctx, id, reason)
			}, func(id string, _ *api.Inbound) string { return r.Then(id, "is discarded") })),
	}
}

func sendCommand(a *app.App) *cobra.Command {
	command := &cobra.Command{
		Use: "send FILE", Short: "Send an event, or a list of up to 100",
		Long: `Send a CloudEvent 1.0 as JSON, or a list of up to 100. - is the standard input. What was sent before is not
taken again: an event is the same when its source and its id are.`,
		Example: "  mainstay event send opened.json\n  generate-events | mainstay event send -",
		Args:    app.Exactly("the file of an event"),
	}
	return a.Call(command, func(ctx context.Context, s *app.Client, args []string) error {
		text, err := textfile.ReadFrom(command.InOrStdin(), args[0])
		if err != nil {
			return app.WithExit(app.ExitUsage, err)
		}
		sent, err := s.Inbound.Send(ctx, text)
		if err != nil {
			return err
		}
		refused := 0
		for _, one := range sent.Events {
			if one.Error != nil {
				refused++
			}
		}
		err = s.Print(func() error { return printSent(a, sent) })
		if refused > 0 {
			return errors.Join(err, fmt.Errorf("%d of %d events were not taken", refused, len(sent.Events)))
		}
		return err
	})
}

func printSent(a *app.App, sent *client.SentEvents) error {
	if sent.Events == nil {
		sent.Events = []api.InboundItem{{ID: sent.ID, Status: sent.Status, Duplicate: sent.Duplicate}}
	}
	var b strings.Builder
	for i, one := range sent.Events {
		switch {
		case one.Error != nil:
			fmt.Fprintf(&b, "Event %d was not taken: %s\n", i+1, app.OneLine(one.Error.Detail))
		case one.Duplicate:
			fmt.Fprintf(&b, "Event %s was sent before; it is %s.\n", one.ID, one.Status)
		default:
			fmt.Fprintf(&b, "Event %[1]s is received. See what becomes of it with: mainstay inbound get %[1]s\n", one.ID)
		}
	}
	return a.Sayf("%s", b.String())
}

func listFlags(c *cobra.Command, q *client.InboundQuery) {
	c.Flags().StringVar(&q.Type, "type", "", "only of this type")
	c.Flags().StringVar(&q.Tenant, "tenant", "", "only of this tenant")
}

func printEvents(a *app.App, events []api.InboundEvent) error {
	header := []string{"EVENT", "TYPE", "SOURCE", "STATUS", "RECEIVED", "WHY"}
	return app.PrintTable(a, events, "There are no such events.", header, func(e *api.InboundEvent) []any {
		return []any{e.ID, e.Type, e.Source, e.Status, e.ReceivedAt, e.Why}
	})
}

func printEvent(a *app.App, e *api.Inbound) error {
	facts := [][2]any{{"Event", e.ID}, {"Type", e.Type}, {"Source", e.Source}, {"Source's id", e.EventID},
		{"Tenant", e.Tenant}, {"Correlation", e.CorrelationID}, {"Status", e.Status}, {"Why", e.Why},
		{"Received", e.ReceivedAt}}
	for _, d := range e.Dispatches {
		facts = append(facts, [2]any{"Started", string(d.Kind) + " " + d.ID + " (" + d.Outcome + ")"})
		if d.Died != "" {
			facts = append(facts, [2]any{"Died", d.ID + ": " + app.OneLine(d.Died)})
		}
	}
	for _, t := range e.Tries {
		facts = append(facts, [2]any{"Failed", a.Ago(&t.At) + ": " + app.OneLine(t.Why)})
	}
	for _, d := range e.Decisions {
		facts = append(facts, [2]any{"Decided",
			d.Action + " by " + d.By + ", " + a.Ago(&d.At) + ": " + app.OneLine(d.Reason)})
	}
	if e.Event != nil {
		facts = append(facts, [2]any{"Body", string(e.Event.Body)})
	}
	return a.Facts(facts)
}

func replayCommand(r *app.Resource[client.Inbound]) *cobra.Command {
	var data string
	return app.Do(r, &cobra.Command{
		Use: "replay EVENT", Short: "Have an event dispatched again",
		Example: "  mainstay quarantine replay 5a2c… --reason \"the job is mended\"\n" +
			"  mainstay quarantine replay 5a2c… --data @corrected.json",
	}, func(c *cobra.Command, in *api.ReplayRequest) {
		c.Flags().StringVar(&data, "data", "",
			"JSON to use instead of the event's data: a value, @FILE, or - for standard input")
		r.ReasonFlag(c, &in.Reason)
	}, func(e client.Inbound, ctx context.Context, id string, in api.ReplayRequest) (_ *api.Inbound, err error) {
		if in.Data, err = app.ReadJSON("--data", data, r.Stdin); err != nil {
			return nil, err
		}
		return e.Replay(ctx, id, in)
	}, printEvent)
}

// Package inbound has the commands of events from outside.
package inbound

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/client"
	"mainstay.dev/mainstay/mesh"
	"mainstay.dev/mainstay/textfile"
)

// Commands are the groups: events that are sent, that were received, and that are in quarantine.
func Commands(a *app.App) []*cobra.Command {
	send := &cobra.Command{Use: "event", Short: "Send events, which start tasks and runs of jobs"}
	received := &cobra.Command{Use: "inbound", Short: "See what became of events from outside"}
	held := &cobra.Command{Use: "quarantine", Short: "Decide about events that could not be dispatched, or whose work died"}
	send.AddCommand(sendCommand(a))
	received.AddCommand(listCommand(a, "  mainstay inbound list --status unmatched", client.Inbound.List, true),
		getCommand(a, "Show an event and what became of it", client.Inbound.Get))
	held.AddCommand(listCommand(a, "  mainstay quarantine list", client.Inbound.Quarantine, false),
		getCommand(a, "Show an event in quarantine, and why it is there", client.Inbound.Quarantined),
		replayCommand(a), discardCommand(a))
	groups := []*cobra.Command{send, received, held}
	for _, group := range groups {
		a.ServerFlag(group)
	}
	return groups
}

func sendCommand(a *app.App) *cobra.Command {
	command := &cobra.Command{
		Use: "send FILE", Short: "Send an event, or a list of up to 100",
		Long: `Send a CloudEvent 1.0 as JSON, or a list of up to 100. - is the standard input. What was sent before is not taken again:
an event is the same when its source and its id are.`,
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
		err = a.Print(s.Answer, func() error { return printSent(a, sent) })
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

func listCommand(
	a *app.App, example string, list func(client.Inbound, client.InboundQuery) *client.List[mesh.InboundEvent],
	all bool,
) *cobra.Command {
	var q client.InboundQuery
	command := app.LimitedList(a, &cobra.Command{
		Use: "list", Short: "List events, newest first", Args: app.Exactly(), Example: example,
	}, func(s *client.Client) *client.List[mesh.InboundEvent] { return list(s.Inbound, q) },
		func(a *app.App, events []mesh.InboundEvent) error {
			header := []string{"EVENT", "TYPE", "SOURCE", "STATUS", "RECEIVED", "WHY"}
			return app.PrintTable(a, events, "There are no such events.", header, func(e *mesh.InboundEvent) []string {
				return []string{e.ID, e.Type, e.Source, string(e.Status), a.Ago(&e.ReceivedAt), app.OneLine(e.Why)}
			})
		})
	command.Flags().StringVar(&q.Type, "type", "", "only of this type")
	command.Flags().StringVar(&q.Tenant, "tenant", "", "only of this tenant")
	if all {
		command.Flags().StringVar((*string)(&q.Status), "status", "",
			"only with this status: received, dispatched, unmatched, quarantined or discarded")
	}
	return command
}

func getCommand(
	a *app.App, short string, get func(client.Inbound, context.Context, string) (*api.Inbound, error),
) *cobra.Command {
	return app.Show(a, &cobra.Command{Use: "get EVENT", Short: short, Args: app.Exactly("an event's id"),
		Example: "  mainstay inbound get 5a2c…"},
		func(ctx context.Context, s *client.Client, args []string) (*api.Inbound, error) {
			return get(s.Inbound, ctx, args[0])
		}, printEvent)
}

func printEvent(a *app.App, e *api.Inbound) error {
	facts := [][2]string{{"Event", e.ID}, {"Type", e.Type}, {"Source", e.Source}, {"Source's id", e.EventID},
		{"Tenant", e.Tenant}, {"Correlation", e.CorrelationID}, {"Status", string(e.Status)}, {"Why", e.Why},
		{"Received", a.Ago(&e.ReceivedAt)}}
	for _, d := range e.Dispatches {
		facts = append(facts, [2]string{"Started", string(d.Kind) + " " + d.ID + " (" + d.Outcome + ")"})
		if d.Died != "" {
			facts = append(facts, [2]string{"Died", d.ID + ": " + app.OneLine(d.Died)})
		}
	}
	for _, t := range e.Tries {
		facts = append(facts, [2]string{"Failed", a.Ago(&t.At) + ": " + app.OneLine(t.Why)})
	}
	for _, d := range e.Decisions {
		facts = append(facts, [2]string{"Decided",
			d.Action + " by " + d.By + ", " + a.Ago(&d.At) + ": " + app.OneLine(d.Reason)})
	}
	if e.Event != nil {
		facts = append(facts, [2]string{"Body", string(e.Event.Body)})
	}
	return a.Facts(facts)
}

func replayCommand(a *app.App) *cobra.Command {
	var in api.ReplayRequest
	var data string
	command := app.Show(a, &cobra.Command{
		Use: "replay EVENT", Short: "Have an event dispatched again", Args: app.Exactly("an event's id"),
		Example: "  mainstay quarantine replay 5a2c… --reason \"the job is mended\"\n  mainstay quarantine replay 5a2c… --data @corrected.json",
	}, func(ctx context.Context, s *client.Client, args []string) (_ *api.Inbound, err error) {
		if in.Data, err = app.ReadJSON("--data", data, a.Stdin); err != nil {
			return nil, err
		}
		return s.Inbound.Replay(ctx, args[0], in)
	}, printEvent)
	command.Flags().StringVar(&data, "data", "", "JSON to use instead of the event's data: a value, @FILE, or - for standard input")
	command.Flags().StringVar(&in.Reason, "reason", "", "why; kept with the event")
	return command
}

func discardCommand(a *app.App) *cobra.Command {
	var reason string
	command := a.Call(&cobra.Command{
		Use: "discard EVENT", Short: "Give an event up", Args: app.Exactly("an event's id"),
		Example: "  mainstay quarantine discard 5a2c… --reason \"sent by mistake\"",
	}, func(ctx context.Context, s *app.Client, args []string) error {
		if reason == "" {
			return app.UsageError("needs --reason: why the event is given up")
		}
		if _, err := s.Inbound.Discard(ctx, args[0], reason); err != nil {
			return err
		}
		return a.Print(s.Answer, func() error { return a.Sayf("Event %s is discarded.\n", args[0]) })
	})
	command.Flags().StringVar(&reason, "reason", "", "why; kept with the event")
	return command
}

package cluster

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/sdk/api"
)

func syncCommand(a *app.App) *cobra.Command {
	var check bool
	var reason string
	command := a.Call(&cobra.Command{
		Use:   "sync NAME",
		Short: "Make the states of a cluster's members the same, or compare them",
		Long: `Make the states of a cluster's members the same: what the leader wrote is sent to the members that lack it. Clusters that
are active_passive or sharded do it by themselves when their members' states differ. With --check, only compare them.
Exits with an error when some still differ.`,
		Example: "  mainstay cluster sync default\n  mainstay cluster sync default --check",
		Args:    app.Exactly("a cluster's name"),
	}, func(ctx context.Context, s *app.Client, args []string) error {
		if check {
			k, err := s.Clusters.CompareStates(ctx, args[0])
			if err == nil {
				err = s.Print(func() error { return printClusterSync(a, k) })
			}
			if err != nil || k.Consistent {
				return err
			}
			return app.IncompleteError("the states of cluster %s differ", args[0])
		}
		r, err := s.Clusters.Sync(ctx, args[0], reason)
		if err == nil {
			err = s.Print(func() error { return printSync(a, r) })
		}
		if err != nil || r.Status == api.SyncConsistent || r.Status == api.SyncSkipped {
			return err
		}
		return app.IncompleteError("the state sync of cluster %s is %s", args[0], r.Status)
	})
	command.Flags().BoolVar(&check, "check", false, "only compare them")
	command.Flags().StringVar(&reason, "reason", "", "why; kept in the record")
	return command
}

func printSync(a *app.App, r *api.SyncReport) error {
	text := fmt.Sprintf("Cluster %s: %s", r.Cluster, r.Status)
	if r.Why != "" {
		text += ": " + app.OneLine(r.Why)
	}
	fmt.Fprintf(a.Stdout, "%s.\nEntries %d, digest %s; %d entries sent (%d bytes).\n\n", text, r.State.Entries,
		r.State.Digest, r.EntriesSent, r.BytesSent)
	return printMemberStates(a, r.Members)
}

func printClusterSync(a *app.App, k *api.ClusterSync) error {
	fmt.Fprintf(a.Stdout, "Cluster %s: %s.\n", k.Cluster, app.OneLine(k.Why))
	if l := k.LastSync; l != nil {
		fmt.Fprintf(a.Stdout, "Last sync: %s, %s (%s).\n", a.Ago(&l.StartedAt), l.Status, app.OneLine(l.Reason))
	}
	fmt.Fprintln(a.Stdout)
	return printMemberStates(a, k.Members)
}

func printMemberStates(a *app.App, members []api.MemberSync) error {
	t := app.NewTable(a.Stdout, "AGENT", "ROLE", "SAME", "ENTRIES", "BEHIND", "VERSION", "DIGEST", "")
	for _, m := range members {
		same, entries, behind, version, digest := "", "", "", "", ""
		if m.State != nil {
			same, entries, digest = "no", fmt.Sprint(m.State.Entries), m.State.Digest
			behind, version = fmt.Sprint(m.Behind), fmt.Sprintf("%d.%d", m.State.Version.Epoch, m.State.Version.Number)
			if m.Consistent {
				same = "yes"
			}
		}
		t.Row(m.AgentID, string(m.Role), same, entries, behind, version, digest, m.Why)
	}
	return t.Flush()
}

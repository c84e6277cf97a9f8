// Package token has the commands of tokens.
package token

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/client"
)

// Command is the group of tokens.
func Command(a *app.App) *cobra.Command {
	command := &cobra.Command{
		Use: "token", Short: "Make, list and revoke the tokens of the API and of agents",
		Long: `Make, list and revoke tokens. An api token is for a client of the API and has a role: viewer looks, operator
also acts on tasks and agents, admin also changes clusters and tokens. A join token lets agents register in one
cluster. Only admins may do this; the first admin token is set where the control plane runs.`,
	}
	r := &app.Resource[client.Tokens]{App: a, Of: func(c *client.Client) client.Tokens { return c.Tokens }}
	return a.GroupOf(command, createCommand(r),
		app.ListAll(r, &cobra.Command{
			Use: "list", Short: "List tokens, without their secrets", Example: "  mainstay token list",
		}, nil, app.All(client.Tokens.List), printTokens),
		revokeCommand(a), whoAmICommand(a))
}

func createCommand(r *app.Resource[client.Tokens]) *cobra.Command {
	return app.Do(r, &cobra.Command{
		Use: "create NAME", Short: "Make a token and show it, this once",
		Example: `  mainstay token create ci --role operator
  mainstay token create acme-portal --role viewer --tenant acme --expires-in 720h
  mainstay token create builders --kind join --cluster build
  mainstay token create three-hosts --kind join --cluster build --max-uses 3 --expires-in 1h
  mainstay token create web-hosts --kind join --cluster web --agent 'web-*'`,
	}, createFlags, app.Only(client.Tokens.Create), printNewToken)
}

func createFlags(c *cobra.Command, r *api.TokenRequest) {
	c.Args = func(c *cobra.Command, args []string) error {
		r.Name = strings.Join(args, "")
		return app.Exactly("a name")(c, args)
	}
	app.CheckFirst(c, func() error {
		if r.Kind == api.TokenAPI && r.Role == "" {
			return app.UsageError("--role is missing: viewer, operator or admin")
		}
		return nil
	})
	flags := c.Flags()
	flags.StringVar((*string)(&r.Kind), "kind", string(api.TokenAPI),
		"api: a client of the API; join: agents that register")
	flags.StringVar((*string)(&r.Role), "role", "", "what an api token may do: viewer, operator or admin")
	flags.StringVar(&r.Tenant, "tenant", "", "the only tenant whose tasks an api token sees and touches (default: all)")
	flags.StringVar(&r.Cluster, "cluster", "", "the cluster that the agents of a join token may join")
	flags.StringVar(&r.AgentID, "agent", "",
		"the only agent that may use a join token, or 'web-*' for all whose id begins so (default: any)")
	flags.IntVar(&r.MaxUses, "max-uses", 0,
		"how many agents may register with a join token; one that comes again counts once (default: any number)")
	flags.DurationVar((*time.Duration)(&r.ExpiresIn), "expires-in", 0, "how long it lives (default: until it is revoked)")
	app.Bounded[api.TokenRequest](flags, map[string]string{"max-uses": "max_uses", "expires-in": "expires_in"})
}

func printNewToken(a *app.App, t *api.NewToken) error {
	env := app.TokenEnv
	if t.Kind == api.TokenJoin {
		env = app.JoinTokenEnv
	}
	return a.Sayf("%s\n\nThis is the only time that it is shown. Its id is %s. Use it so:\n  export %s=%s\n",
		t.Secret, t.ID, env, t.Secret)
}

func printTokens(a *app.App, tokens []api.Token) error {
	const none = "There are no tokens but those that the control plane was started with."
	header := []string{"TOKEN", "NAME", "KIND", "MAY", "FOR", "USES", "CREATED", "BY", "EXPIRES"}
	return app.PrintTable(a, tokens, none, header, func(k *api.Token) []any {
		may, of := string(k.Role), cmp.Or(k.Tenant, "all tenants")
		if k.Kind == api.TokenJoin {
			may, of = "register", "cluster "+k.Cluster
			if k.AgentID != "" {
				of = "agent " + k.AgentID + " in " + of
			}
		}
		uses := "-"
		if k.MaxUses > 0 {
			uses = fmt.Sprintf("%s of %d", known(k.Uses), k.MaxUses)
		}
		expires := "never"
		switch {
		case k.Expired:
			expires = "expired"
		case k.ExpiresAt != nil:
			expires = k.ExpiresAt.UTC().Format("2006-01-02 15:04Z")
		}
		return []any{k.ID, k.Name, k.Kind, may, of, uses, k.CreatedAt, k.CreatedBy, expires}
	})
}

// known is a number, or a question mark while it is not known.
func known(n *int) string {
	if n == nil {
		return "?"
	}
	return strconv.Itoa(*n)
}

func revokeCommand(a *app.App) *cobra.Command {
	var endSessions, withChildren bool
	command := app.Show(a, &cobra.Command{
		Use: "revoke ID|NAME", Short: "Revoke a token: within seconds it no longer works",
		Long: `Revoke a token, by its id or name. An api token stops to work within 5 s, with the browsers' sessions and
the streams that it opened. A join token lets in no agent from now on. Agents that have registered with it stay,
also when their hub is started again, for as long as their process lives. With --end-sessions they are told to stop
at once, and their tasks move to others. The tokens that a token has made stay, unless --with-children is given: use
it when an admin's token has leaked.`,
		Example: "  mainstay token revoke 3f0c5e8a91b2 --with-children\n  mainstay token revoke ci",
		Args:    app.Exactly("a token's id or name"),
	}, func(ctx context.Context, s *client.Client, args []string) (*api.RevokedToken, error) {
		id := args[0]
		if _, named, whole := access.TokenID(id); whole { // its secret need not travel, nor stand in a log
			id = named
		}
		revoked, err := s.Tokens.Revoke(ctx, id, endSessions, withChildren)
		if !client.IsNotFound(err) {
			return revoked, err
		}
		for one, listing := range s.Tokens.List().All(ctx) { // no two have one name
			if listing == nil && one.Name == id {
				return s.Tokens.Revoke(ctx, one.ID, endSessions, withChildren)
			}
		}
		return nil, err
	}, func(a *app.App, t *api.RevokedToken) error { return printRevoked(a, t, endSessions) })
	command.Flags().BoolVar(&endSessions, "end-sessions", false,
		"also end the sessions of the agents that registered with a join token")
	command.Flags().BoolVar(&withChildren, "with-children", false,
		"also revoke the tokens that it has made, and those that these have made")
	return command
}

func printRevoked(a *app.App, t *api.RevokedToken, endSessions bool) error {
	ended := ""
	if len(t.Children) > 0 {
		ended = fmt.Sprintf(" So are its children: %s.", strings.Join(t.Children, ", "))
	}
	switch n := len(t.EndedSessions); {
	case n == 1:
		ended += " The session of agent " + t.EndedSessions[0] + " ends."
	case n > 1:
		ended += fmt.Sprintf(" The sessions of %d agents end: %s.", n, strings.Join(t.EndedSessions, ", "))
	case endSessions:
		ended += " No agent that registered with it is connected."
	}
	return a.Sayf("Token %s is revoked.%s\n", t.ID, ended)
}

func whoAmICommand(a *app.App) *cobra.Command {
	return app.Show(a, &cobra.Command{
		Use:     "whoami",
		Short:   "Say who you are to the control plane, and what you may do",
		Example: "  mainstay token whoami",
		Args:    app.Exactly(),
	}, func(ctx context.Context, s *client.Client, _ []string) (*api.Session, error) {
		return s.Session(ctx)
	}, func(a *app.App, s *api.Session) error {
		if !s.Security {
			return a.Say("Security is off: everybody may do everything.")
		}
		of := "of all tenants"
		if s.Tenant != "" {
			of = "of the tenant " + s.Tenant
		}
		return a.Sayf("%s (%s), %s %s\n", cmp.Or(s.Name, "-"), s.Kind, s.Role, of)
	})
}

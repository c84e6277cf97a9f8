package main

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/agent"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/guard"
	"mainstay.dev/mainstay/protocol"
)

func (a *app) agentRunCommand() *cobra.Command {
	var o agent.Options
	var allowExec bool
	var health string
	var demoRoot string
	var healthFile string
	var providers []string
	var own clientAccess
	var joinTokenFile string
	command := &cobra.Command{
		Use:   "run",
		Short: "Run an agent that executes commands",
		Long: `Run an agent until it gets SIGTERM or SIGINT; then it takes nothing new, finishes what it runs and says goodbye.

With --allow-exec, whoever may submit tasks may run any command here as this user. Agents with handlers of their own are
programs that embed the package mainstay.dev/mainstay/agent, or speak its protocol in any language.`,
		Example: "  mainstay agent run --hub http://10.0.0.5:8080 --cluster build --id build-1 --slots 4 --allow-exec",
		Args:    exactly(),
		RunE: func(c *cobra.Command, _ []string) error {
			o.Version = version
			if o.ID == "" {
				o.ID = generatedAgentID()
			}
			own.fill(func(name string) string {
				if name == tokenEnv {
					return "" // an API token is no business of an agent
				}
				return a.getenv(name)
			})
			var err error
			if o.JoinToken, err = joinToken(joinTokenFile, a.getenv); err != nil {
				return err
			}
			if o.TLS, err = guard.ClientTLS(own.ca, own.cert, own.key); err != nil {
				return withExit(exitUsage, err)
			}
			o.Logger = slog.New(slog.NewTextHandler(a.stderr, nil))
			o.State = agent.NewState()
			tracing, err := a.tracing(c.Context())
			if err != nil {
				return err
			}
			defer stopTracing(tracing)
			o.TracerProvider = tracing.Provider()
			runner, err := agent.New(o)
			if err != nil {
				return withExit(exitUsage, err)
			}
			for _, name := range providers {
				if err := runner.SetProvider(name, fleet.ProviderAccess{Available: true}); err != nil {
					return withExit(exitUsage, err)
				}
			}
			if !allowExec && demoRoot == "" {
				return usageError("this agent could do nothing: add --allow-exec to let it run commands (whoever may submit tasks may then run anything as this user)")
			}
			if allowExec {
				runner.Handle(agent.ExecType, agent.ExecHandler())
			}
			if demoRoot != "" {
				handler, err := checksumHandler(demoRoot)
				if err != nil {
					return withExit(exitUsage, err)
				}
				runner.Handle(checksumType, handler)
			}
			if healthFile != "" {
				go watchHealthFile(c.Context(), healthFile, runner, o.Logger)
			}
			stop, err := serveAgentHealth(health, runner.HealthHandler())
			if err != nil {
				return err
			}
			defer stop()
			return agentExit(runner.Run(c.Context()))
		},
	}
	flags := command.Flags()
	flags.StringSliceVar(&o.HubURLs, "hub", []string{defaultServer}, "URLs of the hubs; it stays with one until that fails")
	flags.StringVar(&o.Cluster, "cluster", "default", "cluster to join")
	flags.StringVar(&o.ID, "id", "", "the agent's own id, unique in the installation (default: the host's name and something random)")
	flags.IntVar(&o.Slots, "slots", 1, "tasks that it runs at a time")
	flags.StringArrayVar(&o.Capabilities, "capability", nil, "what tasks may ask for (repeatable)")
	flags.StringArrayVar(&providers, "provider", nil, "outside service that it has access to; tasks that name it prefer this agent (repeatable)")
	flags.StringVar(&health, "health", "", "host:port for health probes of this agent: /health, /readyz and /healthz (default: none)")
	flags.StringVar(&o.Address, "address", "", "where it can be reached, as host:port, for people and tools (default: where it registers from)")
	flags.StringToStringVar(&o.Metadata, "metadata", nil, "facts about it that others can find it by, as name=value (repeatable)")
	flags.StringVar(&joinTokenFile, "join-token-file", "", "file with the join token, where the control plane asks for one (default $"+joinTokenEnv+")")
	own.tlsFlags(flags)
	flags.StringVar(&o.Zone, "zone", "", "availability zone")
	flags.StringVar(&o.Group, "group", "", "group")
	flags.BoolVar(&allowExec, "allow-exec", false, "run any command that is submitted (task type exec)")
	flags.DurationVar(&o.GiveUpAfter, "give-up-after", 0, "end when no hub has answered for this long (default: never)")
	flags.DurationVar(&o.StopTimeout, "stop-timeout", agent.DefaultStopTimeout, "how long a stop waits for running tasks before it hands them back")
	flags.StringVar(&healthFile, "health-file", "", `file that says how well the agent does, as "0.4 disk errors" or "degraded disk errors"; read every second`)
	flags.StringVar(&demoRoot, "demo-handlers", "", "handle the tasks of `mainstay demo` for files below this folder")
	_ = flags.MarkHidden("demo-handlers") // it exists
	return command
}

// agentExit gives the reasons for which an agent ends their exit codes.
func agentExit(err error) error {
	switch {
	case errors.Is(err, agent.ErrFenced):
		return withExit(exitConflict, err)
	case errors.Is(err, agent.ErrRevoked):
		return withExit(exitRefused, err)
	case errors.Is(err, agent.ErrGaveUp):
		return withExit(exitUnreachable, err)
	}
	switch agent.RefusalCode(err) {
	case protocol.CodeUnauthorized, protocol.CodeForbidden:
		return withExit(exitRefused, err)
	case protocol.CodeUnknownCluster:
		return withExit(exitNotFound, err)
	case protocol.CodeInvalidRequest:
		return withExit(exitUsage, err)
	case protocol.CodeAgentIDInUse, protocol.CodeClusterFull, protocol.CodeConflict:
		return withExit(exitConflict, err)
	}
	return err
}

// generatedAgentID tells agents of one host apart.
func generatedAgentID() string {
	var suffix [3]byte
	_, _ = rand.Read(suffix[:]) // never fails
	return slug(hostName(), fleet.MaxIDLength-7) + "-" + hex.EncodeToString(suffix[:])
}

func hostName() string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "host"
	}
	return name
}

// slug makes an id of any text, of at most limit characters.
func slug(text string, limit int) string {
	id := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '.', r == '_', r == '-':
			return r
		}
		return '-'
	}, strings.ToLower(text))
	if id = strings.TrimLeft(id, ".-_"); len(id) > limit {
		id = id[:limit]
	}
	if id == "" {
		return "host"
	}
	return id
}

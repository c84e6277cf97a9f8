// Package agentrun is `mainstay agent run`: an agent that executes commands.
package agentrun

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.opentelemetry.io/otel"

	"mainstay.dev/mainstay/internal/agenttasks/mcptool"
	"mainstay.dev/mainstay/internal/agenttasks/modeltask"
	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/config/agentconfig"
	"mainstay.dev/mainstay/internal/demo/checksum"
	"mainstay.dev/mainstay/internal/telemetry/tracing"
	"mainstay.dev/mainstay/internal/textfile"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// Command is `agent run`.
func Command(a *app.App) *cobra.Command {
	var o agent.Options
	var allowExec bool
	var health string
	var demoRoot string
	var healthFile string
	var providers []string
	var own app.Access
	var joinTokenFile, configFile string
	var execEnv []string
	var toolsFile, modelsFile string
	var supervised bool
	var restartAfter time.Duration
	var offer offer
	command := &cobra.Command{
		Use:   "run",
		Short: "Run an agent that executes commands",
		Long: `Run an agent until it gets SIGTERM or SIGINT; then it takes nothing new, finishes what it runs and says goodbye.

With --allow-exec, whoever may submit tasks may run any command here as this user. Agents with handlers of their own are
programs that embed the package mainstay.dev/sdk/agent, or speak its protocol in any language.`,
		Example: `  mainstay agent run --hub http://10.0.0.5:8080 --cluster build --id build-1 --slots 4 --allow-exec
  mainstay agent run --config agent.yaml`,
		Args: app.Exactly(),
		RunE: func(c *cobra.Command, _ []string) error {
			probes, expected, err := fromFile(c, configFile, health)
			if err != nil {
				return err
			}
			for i, hub := range o.HubURLs {
				if o.HubURLs[i], err = agent.HubURL(hub); err != nil {
					return app.UsageError("--hub %w", err)
				}
			}
			o.Version = a.Version
			if o.ID == "" {
				o.ID = generatedAgentID()
			}
			if err := cmp.Or(api.ValidateID("--cluster", o.Cluster), api.ValidateID("--id", o.ID)); err != nil {
				return app.WithExit(app.ExitUsage, err)
			}
			own.Fill(func(name string) string {
				if name == app.TokenEnv {
					return "" // an API token is no business of an agent
				}
				return a.Getenv(name)
			})
			if o.JoinToken, err = joinToken(joinTokenFile, a.Getenv); err != nil {
				return err
			}
			if o.TLS, err = own.TLS(); err != nil {
				return err
			}
			o.Logger = slog.New(slog.NewTextHandler(a.Stderr, nil))
			ctx := superviseMe(c.Context(), a.Getenv, &o)
			if supervised && o.OnSession == nil {
				return supervise(ctx, a, o, restartAfter)
			}
			if o.Resources, err = offer.resources(c.Context(), o.Logger); err != nil {
				return app.WithExit(app.ExitUsage, err)
			}
			o.State = agent.NewState()
			o.OnEvent = func(e agent.Event) { warnOfHub(o.Logger, e, expected) }
			traces, err := tracing.New(c.Context(), a.Getenv, "mainstay", a.Version)
			if err != nil {
				return app.WithExit(app.ExitUsage, err)
			}
			defer traces.Close()
			o.TracerProvider = traces.Provider()
			meters, flush, err := tracing.Meters(c.Context(), a.Getenv, "mainstay", a.Version)
			if err != nil {
				return app.WithExit(app.ExitUsage, err)
			}
			defer flush()
			otel.SetMeterProvider(meters)
			tools, err := offered(toolsFile, mcptool.Read, &o)
			if err != nil {
				return app.WithExit(app.ExitUsage, err)
			}
			if tools != nil && allowExec {
				if name := tools.Shown(execEnv); name != "" {
					return app.UsageError("with --allow-exec, commands could read %s from the server of tools that gets it: "+
						"have another agent call the tools, or show it to commands with --exec-env %[1]s", name)
				}
			}
			models, err := offered(modelsFile, modeltask.Read, &o)
			if err != nil {
				return app.WithExit(app.ExitUsage, err)
			}
			runner, err := agent.New(o)
			if err != nil {
				return app.WithExit(app.ExitUsage, err)
			}
			for _, name := range providers {
				if err := runner.SetProvider(name, api.ProviderAccess{Available: true}); err != nil {
					return app.WithExit(app.ExitUsage, err)
				}
			}
			if !allowExec && demoRoot == "" && tools == nil && models == nil {
				return app.UsageError("this agent could do nothing: add --allow-exec to let it run commands (whoever " +
					"may submit tasks may then run anything as this user), --mcp to let it call tools, or --models to let it call models")
			}
			if models != nil {
				caller, err := modeltask.New(models, runner.SetProvider)
				if err != nil {
					return app.WithExit(app.ExitUsage, err)
				}
				runner.Handle(modeltask.Type, caller.Handle)
			}
			if tools != nil {
				caller := mcptool.New(tools, o.Version, o.Logger, runner.SetProvider)
				defer caller.Close()
				runner.Handle(mcptool.Type, caller.Handle)
			}
			if allowExec {
				runner.Handle(agent.ExecType, agent.ExecHandler(execEnv...))
			}
			if demoRoot != "" {
				handler, err := checksum.Handler(demoRoot)
				if err != nil {
					return app.WithExit(app.ExitUsage, err)
				}
				runner.Handle(checksum.Type, handler)
			}
			if healthFile != "" {
				go watchHealthFile(c.Context(), healthFile, runner, o.Logger)
			}
			stop, err := serveAgentHealth(probes, runner.HealthHandler(), o.Logger)
			if err != nil {
				return err
			}
			defer stop()
			return Exit(runner.Run(ctx))
		},
	}
	command.PersistentPreRunE = a.OutliveReader
	flags := command.Flags()
	flags.StringSliceVar(&o.HubURLs, "hub", []string{app.DefaultServer},
		"URLs of the hubs; it stays with one until that fails")
	flags.StringVar(&o.Cluster, "cluster", "default", "cluster to join")
	flags.StringVar(&o.ID, "id", "",
		"the agent's own id, unique in the installation (default: the host's name and something random)")
	flags.IntVar(&o.Slots, "slots", 1, "tasks that it runs at a time")
	flags.StringArrayVar(&o.Capabilities, "capability", nil, "what tasks may ask for (repeatable)")
	flags.StringArrayVar(&providers, "provider", nil,
		"outside service that it has access to; tasks that name it prefer this agent (repeatable)")
	flags.StringVar(&configFile, "config", "", "YAML file with this agent's settings; flags win over it")
	flags.StringVar(&health, "health", net.JoinHostPort(healthHost, strconv.Itoa(agentconfig.DefaultHealthPort)),
		"host:port for health probes of this agent: /health, /readyz and /healthz; off: none")
	app.MayBeEmpty(flags, "health")
	flags.StringVar(&o.Address, "address", "",
		"where it can be reached, as host:port, for people and tools (default: where it registers from)")
	app.PairsFlag(flags, &o.Metadata, "metadata", "",
		"facts about it that others can find it by, as name=value (repeatable)")
	flags.StringVar(&joinTokenFile, "join-token-file", "",
		"file with the join token, where the control plane asks for one (default $"+api.EnvJoinTokenFile+
			", else the token itself in $"+app.JoinTokenEnv+")")
	own.Flags(flags)
	flags.StringVar(&o.Zone, "zone", "", "availability zone")
	flags.StringVar(&o.Group, "group", "", "group")
	flags.BoolVar(&allowExec, "allow-exec", false, "run any command that is submitted (task type exec)")
	flags.StringSliceVar(&execEnv, "exec-env", nil,
		"variable of this agent's environment that commands see beside PATH, HOME, LANG, TZ and the like (repeatable)")
	flags.StringVar(&toolsFile, "mcp", "",
		"YAML file with servers of tools (Model Context Protocol) that tasks of type mcp-tool may call")
	flags.StringVar(&modelsFile, "models", "",
		"YAML file with providers of models that tasks of type model may call")
	offer.flags(flags)
	flags.DurationVar(&o.GiveUpAfter, "give-up-after", 0, "end when no hub has answered for this long (default: never)")
	flags.DurationVar(&o.StopTimeout, "stop-timeout", agent.DefaultStopTimeout,
		"how long a stop waits for running tasks before it hands them back")
	flags.BoolVar(&supervised, "supervise", false,
		"run the agent as a child, and prove to its hub that it died, when it does: nothing waits for its leases then")
	flags.DurationVar(&restartAfter, "restart-after", 0,
		"with --supervise: pause before an agent that died is started again (default: end with its exit code)")
	flags.StringVar(&healthFile, "health-file", "",
		`file that says how well the agent does, as "0.4 disk errors" or "degraded disk errors"; read every second`)
	flags.StringVar(&demoRoot, "demo-handlers", "", "handle the tasks of `mainstay demo` for files below this folder")
	_ = flags.MarkHidden("demo-handlers") // it exists
	return command
}

// offered reads a file that lists what tasks may call, if there is one, and gives the agent its capabilities.
func offered[F any, P interface {
	*F
	Capabilities() []string
}](path string, read func(string) (P, error), o *agent.Options) (P, error) {
	if path == "" {
		return nil, nil
	}
	file, err := read(path)
	if err != nil {
		return nil, err
	}
	o.Capabilities = append(o.Capabilities, file.Capabilities()...)
	return file, nil
}

// Exit gives the reasons for which an agent ends their exit codes.
func Exit(err error) error {
	switch {
	case errors.Is(err, agent.ErrFenced):
		return app.WithExit(app.ExitConflict, err)
	case errors.Is(err, agent.ErrRevoked):
		return app.WithExit(app.ExitRefused, err)
	case errors.Is(err, agent.ErrGaveUp):
		return app.WithExit(app.ExitUnreachable, err)
	}
	switch agent.RefusalCode(err) {
	case protocol.CodeUnauthorized, protocol.CodeForbidden:
		return app.WithExit(app.ExitRefused, err)
	case protocol.CodeUnknownCluster:
		return app.WithExit(app.ExitNotFound, err)
	case protocol.CodeInvalidRequest:
		return app.WithExit(app.ExitUsage, err)
	case protocol.CodeAgentIDInUse, protocol.CodeClusterFull, protocol.CodeConflict:
		return app.WithExit(app.ExitConflict, err)
	}
	return err
}

// generatedAgentID distinguishes agents of one host.
func generatedAgentID() string {
	var suffix [3]byte
	_, _ = rand.Read(suffix[:]) // never fails
	return app.Slug(app.HostName(), api.MaxIDLength-7) + "-" + hex.EncodeToString(suffix[:])
}

// joinToken reads the token with which an agent registers: the flag's file, the environment's, else the token itself.
func joinToken(file string, getenv func(string) string) (string, error) {
	if file == "" {
		file = getenv(api.EnvJoinTokenFile)
	}
	if file == "" {
		return strings.TrimSpace(getenv(app.JoinTokenEnv)), nil
	}
	token, err := textfile.ReadWord(file)
	if err != nil {
		return "", app.WithExit(app.ExitUsage, fmt.Errorf("read the join token: %w", err))
	}
	return token, nil
}

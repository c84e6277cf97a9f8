// Package dev runs everything on one machine: an embedded Temporal, a control plane, and agents as processes of their
// own.
package dev

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/config"
	"mainstay.dev/mainstay/internal/controlplane"
	"mainstay.dev/mainstay/internal/devserver"
	"mainstay.dev/sdk/api"
)

// flags is the command line of `dev`.
type flags struct {
	http, ui, temporal string
	dataDir            string
	ephemeral          bool
	acceptOldData      bool
	agents, slots      int
	allowExec          bool
	execEnv            []string
	durability         string
	configFile         string
	cpuProfile         string
	platform, image    string
	security           controlplane.SecurityFlags
}

// Command is `dev`.
func Command(a *app.App) *cobra.Command {
	var f flags
	command := &cobra.Command{
		Use:   "dev",
		Short: "Run everything here: Temporal, its Web UI, the control plane and some agents",
		Long: `Run everything on this machine: an embedded Temporal with its Web UI, hub, gateway and worker in this process, and
agents as processes of their own, which are started again when they die.

The agents run commands (task type exec) because only this machine can reach the API, Temporal and its Web UI. When others
can reach one of them too, or an admin token is set, every request to the API and the Web UI needs a token, Temporal needs the key
in the data directory (temporal-key), and agents run commands only with --allow-exec.

Ctrl-C stops all; another, a second later or more, stops at once. If this process is killed, its agents live on for a
minute and are taken over by the next "mainstay dev" on the same data directory.`,
		Example: `  mainstay dev
  mainstay dev --ephemeral --agents 5 --http 127.0.0.1:9090 --ui off
  mainstay dev --platform docker --image debian:stable-slim`,
		Args: app.Exactly(),
		RunE: func(c *cobra.Command, _ []string) error {
			settings, err := config.Load(f.configFile)
			if err != nil {
				return app.WithExit(app.ExitUsage, err)
			}
			o, err := f.options(settings, c.Flags().Changed)
			if err != nil {
				return err
			}
			stop, err := cpuProfile(f.cpuProfile)
			if err != nil {
				return err
			}
			defer stop()
			return dev(c.Context(), a, o)
		},
	}
	command.PersistentPreRunE = a.OutliveReader
	defaults := config.Default()
	flags := command.Flags()
	flags.StringVar(&f.http, "http", defaults.HTTP.Listen, "host:port of the REST API; port 0 takes a free one")
	flags.StringVar(&f.ui, "ui", defaults.Dev.UI, "port or host:port of Temporal's Web UI; off: none")
	flags.StringVar(&f.temporal, "temporal", defaults.Dev.Temporal, "host:port of the embedded Temporal")
	flags.StringVar(&f.dataDir, "data-dir", defaults.Dev.DataDir, "where all state and the logs are kept")
	flags.BoolVar(&f.ephemeral, "ephemeral", false, "keep all state in memory; it is gone at the end")
	flags.BoolVar(&f.acceptOldData, "accept-old-data", false,
		"start on the data of another version although its open workflows cannot go on")
	flags.IntVar(&f.agents, "agents", defaults.Dev.Agents, "agents to run, 0 to 100")
	app.Bounded[config.Dev](flags, map[string]string{"agents": "agents"})
	flags.IntVar(&f.slots, "slots", defaults.Dev.Slots, "tasks that each agent runs at a time")
	flags.BoolVar(&f.allowExec, "allow-exec", false,
		"let agents run commands although security is on: they run as this user")
	flags.StringSliceVar(&f.execEnv, "exec-env", nil,
		"variable of this environment that commands see beside PATH, HOME, LANG, TZ and the like (repeatable)")
	flags.StringVar(&f.durability, "durability", string(defaults.Dev.Durability),
		"what acknowledged tasks survive: process (a crash of the program) or power (a power loss too)")
	app.Complete(command, "durability", "process", "power")
	flags.StringVar(&f.platform, "platform", string(api.PlatformProcess),
		"where the agents run: process, or docker, as containers of this machine's engine, which needs Linux")
	flags.StringVar(&f.image, "image", defaultImage,
		"image of the agents' containers; this program is put into it, so any will do")
	f.security.AddTo(flags)
	flags.StringVar(&f.configFile, "config", "", "configuration file; flags win over it")
	flags.StringVar(&f.cpuProfile, "cpu-profile", "", "write a CPU profile of this process to a file")
	_ = flags.MarkHidden("cpu-profile") // it exists
	a.OutputFlag(command)
	return command
}

// defaultImage has what commands of a first try need.
const defaultImage = "debian:stable-slim"

// options puts configuration and flags together. changed reports whether a flag was given.
func (f *flags) options(c *config.Config, changed func(string) bool) (Options, error) {
	take := func(flag string, into *string, value string) {
		if changed(flag) {
			*into = value
		}
	}
	take("http", &c.HTTP.Listen, f.http)
	take("temporal", &c.Dev.Temporal, f.temporal)
	take("data-dir", &c.Dev.DataDir, f.dataDir)
	if changed("ui") {
		c.Dev.UI = uiAddress(f.ui)
	}
	if changed("agents") {
		c.Dev.Agents = f.agents
	}
	if changed("slots") {
		c.Dev.Slots = f.slots
	}
	if changed("durability") {
		c.Dev.Durability = config.Durability(f.durability)
	}
	c.Security = f.security.Over(c.Security)
	if c.Security.TLSCert != "" {
		return Options{}, app.WithExit(app.ExitUsage, errNoTLSInDev)
	}
	if f.ephemeral {
		if changed("data-dir") {
			return Options{}, app.UsageError("give --data-dir or --ephemeral, not both")
		}
		c.Dev.DataDir = ""
	}
	if err := c.Validate(); err != nil {
		return Options{}, app.WithExit(app.ExitUsage, err)
	}
	o := Options{
		HTTP: c.HTTP.Listen, dataDir: c.Dev.DataDir, Agents: c.Dev.Agents, Slots: c.Dev.Slots, hubID: c.Hub.ID,
		tokenKeyFile: c.Hub.TokenKeyFile,
		Hub:          controlplane.HubConfig(c),
		Clusters:     withDevCluster(c.ClusterConfigs()),
		Mesh:         c.Mesh,
		allowExec:    f.allowExec,
		execEnv:      f.execEnv,
		security:     c.Security,
	}
	switch api.Platform(f.platform) {
	case "", api.PlatformProcess:
		if changed("image") {
			return Options{}, app.UsageError("--image needs --platform docker")
		}
	case api.PlatformDocker:
		if runtime.GOOS != "linux" || f.image == "" {
			return Options{}, app.UsageError("--platform docker needs an --image, and Linux: its containers run this program")
		}
		o.Image = f.image
	default:
		return Options{}, app.UsageError("--platform must be process or docker")
	}
	var err error
	if o.UI, err = uiListen(c); err != nil {
		return Options{}, err
	}
	o.Temporal, err = temporalOptions(c)
	o.Temporal.AcceptOldData = f.acceptOldData
	return o, err
}

// uiAddress reads --ui: off, a port, or host:port.
func uiAddress(value string) string {
	switch {
	case value == "off":
		return ""
	case !strings.Contains(value, ":"):
		return net.JoinHostPort("127.0.0.1", value)
	}
	return value
}

// temporalOptions are the embedded Temporal's options, except those that are only known when it starts.
func temporalOptions(c *config.Config) (devserver.Options, error) {
	o := devserver.Options{Durability: devserver.Durability(c.Dev.Durability)}
	var err error
	if o.Host, o.Port, err = SplitIP("--temporal", c.Dev.Temporal); err != nil {
		return o, err
	}
	return o, nil
}

// uiListen is the address of the Web UI; empty: none.
func uiListen(c *config.Config) (string, error) {
	if c.Dev.UI == "" {
		return "", nil
	}
	host, port, err := SplitIP("--ui", c.Dev.UI)
	return net.JoinHostPort(host, strconv.Itoa(port)), err
}

// SplitIP reads host:port where the host is an IP address.
func SplitIP(flag, address string) (string, int, error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, app.UsageError("%s must be host:port", flag)
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return "", 0, app.UsageError("%s: the port must be 0 to 65535", flag)
	}
	if host == "localhost" || host == "" {
		host = "127.0.0.1"
	}
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() && flag == "--temporal" {
		return "", 0, app.UsageError("%s: the host must be one IP address of this machine", flag)
	}
	return host, int(port), nil
}

// Cluster is the cluster of the agents that `dev` starts.
const Cluster = "default"

func withDevCluster(clusters []api.ClusterConfig) []api.ClusterConfig {
	for _, c := range clusters {
		if c.Name == Cluster {
			return clusters
		}
	}
	return append(clusters, api.ClusterConfig{Name: Cluster})
}

// dev runs until a signal comes or something that all depends on ends.
func dev(ctx context.Context, a *app.App, o Options) error {
	d, err := Start(ctx, a, o)
	if err != nil {
		return err
	}
	defer d.Stop()
	force := d.Kill
	a.AtForce.Store(&force)
	if !d.AwaitAgents(ctx) && ctx.Err() == nil {
		where := "their logs are in " + filepath.Join(d.dir, "logs")
		if d.containers > 0 {
			where = "`docker ps -a` has their containers"
		}
		fmt.Fprintf(a.Stderr, "Not all agents are online yet; %s.\n", where)
	}
	if err := reportDev(a, d); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		fmt.Fprintln(a.Stderr, "Stopping agents and control plane. Ctrl-C again stops at once.")
		begun := time.Now()
		d.Stop()
		fmt.Fprintf(a.Stderr, "Stopped in %s.\n", app.Roughly(time.Since(begun)))
		return nil
	case err := <-d.plane.Failed():
		return controlplane.Served(err)
	}
}

// kept reads a small file of the data directory, or makes it with a first content. Only its owner can read it.
func kept(dir, name string, first func() (string, error)) (string, error) {
	path := filepath.Join(dir, name)
	data, err := os.ReadFile(path)
	if err == nil && strings.TrimSpace(string(data)) != "" {
		return strings.TrimSpace(string(data)), nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	text, err := first()
	if err != nil {
		return "", err
	}
	return text, writeFile(path, []byte(text+"\n"))
}

// writeFile replaces a file in one step, so that a crash leaves the old or the new one.
func writeFile(path string, data []byte) error {
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func randomHex(n int) (string, error) {
	b := make([]byte, n)
	_, err := rand.Read(b)
	return hex.EncodeToString(b), err
}

// keptTokens are `dev`'s: given, or made once and kept in its data directory.
func keptTokens(dir string, given controlplane.FirstTokens) (controlplane.FirstTokens, error) {
	var err error
	token := func(name string) (string, error) {
		return kept(dir, name, func() (string, error) { return randomHex(32) })
	}
	if given.Admin == "" {
		if given.Admin, err = token(adminTokenName); err != nil {
			return given, fmt.Errorf("the admin token: %w", err)
		}
	}
	if given.Join == "" {
		if given.Join, err = token(joinTokenName); err != nil {
			return given, fmt.Errorf("the join token: %w", err)
		}
	}
	return given, nil
}

// Names of the secrets' files in the data directory.
const (
	adminTokenName  = "admin-token"
	joinTokenName   = "join-token"
	temporalKeyName = "temporal-key"
)

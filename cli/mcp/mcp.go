// Package mcp is `mainstay mcp`: the control plane as a server of the Model Context Protocol, for operators' assistants.
package mcp

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/client"
)

const (
	// maxBody bounds a request over HTTP in bytes.
	maxBody = 1 << 20
	// headerLimit bounds how long a request's header may take, and stopLimit how long open requests may at the end.
	headerLimit = 10 * time.Second
	stopLimit   = 5 * time.Second
)

// Command is `mainstay mcp`.
func Command(a *app.App) *cobra.Command {
	var listen string
	var readOnly bool
	command := &cobra.Command{
		Use:   "mcp",
		Short: "Serve the fleet to an assistant, by the Model Context Protocol",
		Long: `Serve the fleet to an operator's assistant, by the Model Context Protocol (MCP). Its tools read what the REST API
tells: the overview, tasks and why they wait, agents, failovers, events, jobs and runs. Tools that change something are
marked as such, and are refused unless the API token has a role that may.

Without --listen the assistant starts this command and speaks over its input and output, with the token of --token or
MAINSTAY_TOKEN. With --listen many may use it over HTTP: each sends an API token of its own as "Authorization: Bearer".`,
		Example: "  mainstay mcp\n  mainstay mcp --read-only\n  mainstay mcp --listen 127.0.0.1:8765",
		Args:    app.Exactly(),
		RunE: func(c *cobra.Command, _ []string) error {
			api, err := a.Client()
			if err != nil {
				return err
			}
			server := func(c *client.Client) *sdk.Server { return newServer(c.Raw(nil), a.Version, readOnly) }
			if listen == "" {
				if err := server(api.Client).Run(c.Context(), &sdk.StdioTransport{}); c.Context().Err() == nil {
					return err
				}
				return nil // it was told to stop
			}
			if api.HasToken() {
				return app.UsageError("with --listen every request brings its own API token: leave --token and %s out",
					app.TokenEnv)
			}
			return serve(c.Context(), a, listen, func(token string) *sdk.Server { return server(api.As(token)) })
		},
	}
	a.ServerFlag(command)
	flags := command.Flags()
	flags.StringVar(&listen, "listen", "", "serve HTTP at this host:port of this machine, at any path")
	flags.BoolVar(&readOnly, "read-only", false, "leave out the tools that change something")
	return command
}

// serve answers requests over HTTP until ctx ends.
func serve(ctx context.Context, a *app.App, address string, server func(token string) *sdk.Server) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return app.UsageError("--listen: %w", err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return app.UsageError("--listen must be an address of this machine, such as 127.0.0.1:8765: tokens would pass " +
			"unencrypted. Put a proxy with TLS before it")
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	s := &http.Server{Handler: handler(server), ReadHeaderTimeout: headerLimit}
	stop := context.AfterFunc(ctx, func() {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
		defer cancel()
		if s.Shutdown(limited) != nil {
			_ = s.Close()
		}
	})
	defer stop()
	if err := a.Sayf("MCP is served at http://%s\n", listener.Addr()); err != nil {
		return err
	}
	if err := s.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// handler makes a server for each request, with the token that the request brings. It refuses pages of other origins,
// and names other than localhost's.
func handler(server func(token string) *sdk.Server) http.Handler {
	each := func(r *http.Request) *sdk.Server {
		token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		return server(token)
	}
	return http.NewCrossOriginProtection().Handler(sdk.NewStreamableHTTPHandler(each,
		&sdk.StreamableHTTPOptions{Stateless: true, JSONResponse: true, MaxRequestBodyBytes: maxBody}))
}

//go:build !linux

package agentrun

import (
	"context"
	"time"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/sdk/agent"
)

// supervise needs a feature of Linux: to be the parent of all that an agent leaves behind.
func supervise(context.Context, *app.App, agent.Options, time.Duration) error {
	return app.UsageError("--supervise works on Linux only: let a service manager restart the agent")
}

func superviseMe(ctx context.Context, _ func(string) string, _ *agent.Options) context.Context {
	return ctx
}

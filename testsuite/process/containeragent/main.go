// Command containeragent is the agent in the containers of tests. Its tasks of the type hold end when they are told,
// and those of the type eat take memory until the kernel ends the container.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"mainstay.dev/mainstay/agent"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/spawner"
)

func main() {
	token, err := os.ReadFile(os.Getenv(fleet.EnvJoinTokenFile))
	if err != nil {
		log.Fatal(err)
	}
	a, err := agent.New(agent.Options{HubURLs: strings.Split(os.Getenv(spawner.EnvHubURLs), ","),
		Cluster: os.Getenv(spawner.EnvCluster), ID: os.Getenv(spawner.EnvAgentID), JoinToken: string(token)})
	if err != nil {
		log.Fatal(err)
	}
	a.Handle("hold", func(ctx context.Context, _ *agent.Task) (any, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	a.Handle("eat", func(context.Context, *agent.Task) (any, error) {
		for all := strings.Repeat("x", 1<<20); ; {
			all += all
		}
	})
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := a.Run(ctx); err != nil {
		log.Fatal(err) //nolint:gocritic // nothing is left to stop
	}
}

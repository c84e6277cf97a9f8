// Command containeragent is the agent in the containers of tests. Its tasks of the type hold end when they are told,
// those of the type eat take memory until the kernel ends the container, those of the type fill write files, and those
// of the type count post their id to the address in their payload, work for a moment, and end.
package main

import (
	"context"
	"encoding/json"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"mainstay.dev/mainstay/internal/spawner"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	file := os.Getenv(api.EnvJoinTokenFile)
	if file == "" { // it is the sandbox of a pod
		<-ctx.Done()
		return
	}
	token, err := os.ReadFile(file)
	if err != nil {
		log.Fatal(err) //nolint:gocritic // nothing is left to stop
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
	a.Handle("fill", func(ctx context.Context, _ *agent.Task) (any, error) {
		full, err := os.Create("/tmp/full")
		for i := 0; i < 100 && err == nil; i++ {
			_, err = full.Write(make([]byte, 1<<20))
		}
		<-ctx.Done()
		return nil, err
	})
	a.Handle("count", func(ctx context.Context, task *agent.Task) (any, error) {
		var address string
		if err := json.Unmarshal(task.Payload, &address); err != nil {
			return nil, err
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(task.ID))
		if err != nil {
			return nil, err
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return nil, err
		}
		_ = answer.Body.Close()
		select {
		case <-ctx.Done():
		case <-time.After(500 * time.Millisecond):
		}
		return "done", ctx.Err()
	})
	if err := a.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

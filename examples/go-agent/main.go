// Command go-agent is an agent in ten lines: it handles tasks of the type echo by returning their payload.
//
//	HUB=http://127.0.0.1:8080 CLUSTER=default ID=go-1 go run ./examples/go-agent
//	mainstay task submit --type echo --payload '{"a": 1}' --wait
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"

	"mainstay.dev/sdk/agent"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := serve(ctx)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

// serve runs an agent until ctx ends. The README shows this function; a test compares the two.
func serve(ctx context.Context) error {
	a, err := agent.New(agent.Options{
		HubURLs: []string{os.Getenv("HUB")}, Cluster: os.Getenv("CLUSTER"), ID: os.Getenv("ID"),
	})
	if err != nil {
		return err
	}
	a.Handle("echo", func(_ context.Context, t *agent.Task) (any, error) { return t.Payload, nil })
	return a.Run(ctx)
}

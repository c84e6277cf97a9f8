package client_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/client"
)

func Example() {
	ctx := context.Background()
	c, err := client.New(client.Options{URL: "http://127.0.0.1:8080", Token: os.Getenv("MAINSTAY_TOKEN")})
	if err != nil {
		log.Fatal(err)
	}
	task, err := c.Tasks.Submit(ctx, &api.TaskRequest{
		IdempotencyKey: "invoice-4711", // submitting it again is the same task
		TaskSpec: api.TaskSpec{Type: "exec", Cluster: "default",
			Payload: []byte(`{"command":["echo","hello"]}`)},
	})
	if err == nil {
		task, err = c.Tasks.Wait(ctx, task.ID, time.Minute)
	}
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(task.ID, task.Status, string(task.Result))
}

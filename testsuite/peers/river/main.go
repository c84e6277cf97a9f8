// Command river measures how many jobs that do nothing River runs a second on a PostgreSQL server, to be read beside
// `mainstay bench arrays`. run.sh starts the server. This is a module of its own, so that Mainstay does not depend on
// River.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

const batch = 5000

type nothing struct{}

func (nothing) Kind() string { return "nothing" }

type worker struct {
	river.WorkerDefaults[nothing]
	left *atomic.Int64
	done chan struct{}
}

func (w *worker) Work(context.Context, *river.Job[nothing]) error {
	if w.left.Add(-1) == 0 {
		close(w.done)
	}
	return nil
}

func main() {
	database := flag.String("database", "", "URL of an empty PostgreSQL database")
	jobs := flag.Int("jobs", 50_000, "jobs")
	workers := flag.Int("workers", 100, "jobs that run at a time")
	flag.Parse()
	if err := run(context.Background(), *database, *jobs, *workers); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, database string, jobs, workers int) error {
	pool, err := pgxpool.New(ctx, database)
	if err != nil {
		return err
	}
	defer pool.Close()
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	w := &worker{left: &atomic.Int64{}, done: make(chan struct{})}
	w.left.Store(int64(jobs))
	kinds := river.NewWorkers()
	river.AddWorker(kinds, w)
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{Workers: kinds,
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workers}}})
	if err != nil {
		return err
	}
	if err := client.Start(ctx); err != nil {
		return err
	}
	began := time.Now()
	for n := 0; n < jobs; n += batch {
		params := make([]river.InsertManyParams, min(batch, jobs-n))
		for i := range params {
			params[i].Args = nothing{}
		}
		if _, err := client.InsertManyFast(ctx, params); err != nil {
			return err
		}
	}
	<-w.done
	if err := client.Stop(ctx); err != nil { // it writes the last completions
		return err
	}
	took := time.Since(began)
	fmt.Printf("River: %d jobs that do nothing in %.1f s, %.0f a second, %d at a time\n", jobs, took.Seconds(),
		float64(jobs)/took.Seconds(), workers)
	return nil
}

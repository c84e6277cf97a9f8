package demo

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/cli/task"
	"mainstay.dev/mainstay/client"
	"mainstay.dev/mainstay/controlplane/dev"
	"mainstay.dev/mainstay/demo/checksum"
	"mainstay.dev/mainstay/fleet"
)

const (
	// batchLimit is how many tasks the API takes in one request.
	batchLimit = 1000
	// demoWaiters bounds the tasks that are waited for at the same time.
	demoWaiters = 16
	// demoTaskLimit is how long one task may take until the demo gives up.
	demoTaskLimit = 5 * time.Minute
)

// demoRun submits the work of the demo and gathers what came of it.
type demoRun struct {
	client *client.Client
	story  io.Writer
	tty    bool
	kill   func(agent string) (pid int, killed bool) // kills an agent's process; nil: none is killed
}

// demoShare is what one agent did.
type demoShare struct {
	Agent string `json:"agent"`
	Tasks int    `json:"tasks"`
	Files int    `json:"files"`
	Bytes int64  `json:"bytes"`
}

func (r *demoRun) do(ctx context.Context, folder string, files []string) (*demoReport, error) {
	begun := time.Now()
	rounds, err := roundsFor(folder, files)
	if err != nil {
		return nil, fmt.Errorf("look at the files: %w", err)
	}
	ids, err := r.submit(ctx, batches(files), rounds)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(r.story, "Submitted %s for %s of %s in %s\n", fleet.Count(len(ids), "task"),
		fleet.Count(len(files), "file"), folder, app.Roughly(time.Since(begun)))
	if rounds > 1 {
		fmt.Fprintf(r.story,
			"The files are small: each is digested %d times over, to have work that can be interrupted.\n", rounds)
	}
	tasks, killed, err := r.await(ctx, ids)
	if err != nil {
		return nil, err
	}
	report := &demoReport{Folder: folder, Files: len(files), Tasks: len(ids), Took: app.Roughly(time.Since(begun)),
		Killed: killed}
	if killed != nil {
		if err := killed.follow(ctx, r.client, tasks); err != nil {
			return nil, err
		}
	}
	sums, err := report.take(tasks)
	if err != nil {
		return nil, err
	}
	local, err := localSums(ctx, folder, files, rounds)
	if err != nil {
		return nil, fmt.Errorf("digest the files here: %w", err)
	}
	report.Remote, report.Local = checksum.Combined(sums), checksum.Combined(local)
	report.Equal = report.Remote == report.Local
	return report, nil
}

// submit hands in one task for each group of files.
func (r *demoRun) submit(ctx context.Context, groups [][]string, rounds int) ([]string, error) {
	var ids []string
	for part := range slices.Chunk(groups, batchLimit) {
		requests := make([]api.TaskRequest, len(part))
		for i, group := range part {
			payload, err := json.Marshal(checksum.Payload{Files: group, Rounds: rounds})
			if err != nil {
				return nil, err
			}
			requests[i] = api.TaskRequest{TaskSpec: fleet.TaskSpec{Type: checksum.Type, Cluster: dev.Cluster,
				Payload: payload}}
		}
		answers, err := client.SubmitAll(ctx, r.client, requests)
		if err != nil {
			return nil, err
		}
		for _, task := range answers {
			if task.Error != nil {
				return nil, fmt.Errorf("a task was refused: %s (%s)", task.Error.Detail, task.Error.Code)
			}
			ids = append(ids, task.ID)
		}
	}
	return ids, nil
}

// await waits for all tasks, shows how far they are, and kills an agent in the middle.
func (r *demoRun) await(ctx context.Context, ids []string) ([]*api.Task, *demoKill, error) {
	tasks := make([]*api.Task, len(ids))
	bar := &app.Progress{To: r.story, TTY: r.tty, Unit: "tasks are done", Total: len(ids)}
	middle := &demoMiddle{run: r, bar: bar}
	waiters, ctx := errgroup.WithContext(ctx)
	waiters.SetLimit(demoWaiters)
	for i, id := range ids {
		waiters.Go(func() (err error) {
			if tasks[i], err = r.client.Tasks.Wait(ctx, id, demoTaskLimit); err != nil {
				return err
			}
			if err := task.Incomplete(tasks[i], demoTaskLimit); err != nil {
				return err
			}
			return middle.reached(ctx, bar.Step())
		})
	}
	err := waiters.Wait()
	return tasks, middle.killed, err
}

// take counts who did what and returns all digests.
func (d *demoReport) take(tasks []*api.Task) ([]checksum.Sum, error) {
	var sums []checksum.Sum
	shares := map[string]*demoShare{}
	for _, t := range tasks {
		var result checksum.Result
		if err := json.Unmarshal(t.Result, &result); err != nil {
			return nil, fmt.Errorf("the result of task %s cannot be read: %w", t.ID, err)
		}
		agent := task.DoneBy(t)
		share := shares[agent]
		if share == nil {
			share = &demoShare{Agent: agent}
			shares[agent] = share
		}
		share.Tasks++
		share.Files += len(result.Files)
		for _, sum := range result.Files {
			share.Bytes += sum.Bytes
			d.Bytes += sum.Bytes
		}
		sums = append(sums, result.Files...)
	}
	for _, share := range shares {
		d.Agents = append(d.Agents, *share)
	}
	slices.SortFunc(d.Agents, func(a, b demoShare) int { return cmp.Compare(a.Agent, b.Agent) })
	return sums, nil
}

package demo

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"mainstay.dev/mainstay/internal/array"
	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/controlplane/dev"
	"mainstay.dev/mainstay/internal/demo/checksum"
	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/client"
)

// lookEvery is how long the demo waits for an array until it shows how far it is.
const lookEvery = 20 * time.Millisecond

// demoRun submits the work of the demo and gathers the results.
type demoRun struct {
	client *client.Client
	story  io.Writer
	tty    bool
	kill   func(agent string) (pid int, killed bool) // kills an agent's process; nil: none is killed
}

// demoShare is what one agent did.
type demoShare struct {
	Agent    string `json:"agent"`
	Elements int    `json:"elements"`
	Files    int    `json:"files"`
	Bytes    int64  `json:"bytes"`
}

func (r *demoRun) do(ctx context.Context, folder string, files []string) (*demoReport, error) {
	begun := time.Now()
	rounds, err := roundsFor(folder, files)
	if err != nil {
		return nil, fmt.Errorf("look at the files: %w", err)
	}
	groups := batches(files)
	ids, err := r.submit(ctx, groups, rounds)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(r.story, "Submitted %s with %s for %s of %s in %s\n", api.Count(len(ids), "array"),
		api.Count(len(groups), "element"), api.Count(len(files), "file"), folder, app.Roughly(time.Since(begun)))
	if rounds > 1 {
		fmt.Fprintf(r.story,
			"The files are small: each is digested %d times over, to have work that can be interrupted.\n", rounds)
	}
	killed, err := r.await(ctx, ids, len(groups))
	if err != nil {
		return nil, err
	}
	took := time.Since(begun)
	report := &demoReport{Folder: folder, Files: len(files), Elements: len(groups), Took: app.Roughly(took),
		PerSecond: float64(len(groups)) / took.Seconds(), Killed: killed}
	if killed != nil {
		if err := killed.follow(ctx, r.client); err != nil {
			return nil, err
		}
	}
	sums, err := report.take(ctx, r.client, ids)
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

// submit hands in an element for each group of files, in as few arrays as their payloads allow.
func (r *demoRun) submit(ctx context.Context, groups [][]string, rounds int) (ids []string, err error) {
	request := api.ArrayRequest{TaskSpec: api.TaskSpec{Type: checksum.Type, Cluster: dev.Cluster},
		MaxParallel: min(max(1, len(groups)/16), array.DefaultParallel)} // so that also a few elements have a middle
	bytes := 0
	send := func() error {
		submitted, err := r.client.Arrays.Submit(ctx, &request)
		if err == nil {
			ids = append(ids, submitted.ID)
		}
		request.Items, bytes = nil, 0
		return err
	}
	for _, group := range groups {
		payload, err := json.Marshal(checksum.Payload{Files: group, Rounds: rounds})
		if err != nil {
			return nil, err
		}
		if bytes += len(payload); bytes > task.MaxItemsBytes && len(request.Items) > 0 {
			if err := send(); err != nil {
				return nil, err
			}
			bytes = len(payload)
		}
		request.Items = append(request.Items, payload)
	}
	return ids, send()
}

// await waits for all arrays, shows how far they are, and kills an agent in the middle.
func (r *demoRun) await(ctx context.Context, ids []string, total int) (killed *demoKill, err error) {
	bar := &app.Progress{To: r.story, TTY: r.tty, Unit: "elements are done", Total: total}
	before, shown := 0, 0
	reported := time.Now() // when the newest element was
	for _, id := range ids {
		for ended := false; !ended; {
			one, err := r.client.Arrays.Get(ctx, id, lookEvery)
			if err != nil {
				return nil, err
			}
			for shown < before+one.Counts.Completed {
				shown, reported = bar.Step(), time.Now()
			}
			if killed == nil {
				if killed, err = r.reached(ctx, bar, shown, reported); err != nil {
					return nil, err
				}
			}
			ended = one.Status == api.ArrayCompleted
			if !ended && (one.Status.Final() || one.Status == api.ArrayBlocked) {
				return nil, app.WithExit(app.ExitIncomplete, fmt.Errorf("array %s is %s: %s", id, one.Status, one.Why))
			}
		}
		before = shown
	}
	return killed, nil
}

// take counts who did what and returns all digests.
func (d *demoReport) take(ctx context.Context, c *client.Client, ids []string) ([]checksum.Sum, error) {
	var sums []checksum.Sum
	shares := map[string]*demoShare{}
	for _, id := range ids {
		for one, err := range c.Arrays.Results(ctx, id) {
			var result checksum.Result
			if err == nil {
				err = json.Unmarshal(one.Output, &result)
			}
			if err != nil {
				return nil, fmt.Errorf("the results of array %s cannot be read: %w", id, err)
			}
			share := shares[one.AgentID]
			if share == nil {
				share = &demoShare{Agent: one.AgentID}
				shares[one.AgentID] = share
			}
			share.Elements++
			share.Files += len(result.Files)
			for _, sum := range result.Files {
				share.Bytes += sum.Bytes
				d.Bytes += sum.Bytes
			}
			sums = append(sums, result.Files...)
		}
	}
	for _, share := range shares {
		d.Agents = append(d.Agents, *share)
	}
	slices.SortFunc(d.Agents, func(a, b demoShare) int { return cmp.Compare(a.Agent, b.Agent) })
	return sums, nil
}

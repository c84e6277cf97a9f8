//go:build linux

package chaos

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	jobs "mainstay.dev/mainstay/internal/job"
	"mainstay.dev/sdk/api"
)

const (
	serviceJob   = "served"
	serviceCount = 2
	jobsPath     = "/api/v1/agents/jobs/"
	// patient is by when a good version is to be healthy. A machine with much to do takes long for it.
	patient = "60s"
)

// serve gives the service a version. within is by when its instances are to be healthy, and place says which agents may
// have them.
func (g *stage) serve(t *testing.T, version, within, place string) {
	t.Helper()
	definition := json.RawMessage(fmt.Sprintf(`{"job": %q, "type": "service", "cluster": %q, "instances": {"count": %d,
		"task": {"type": "work", "payload": {"ms": 86400000, "nonce": %q}}, "place": {%s}},
		"update": {"healthy_after": "200ms", "healthy_within": %q, "revert": true}}`, serviceJob, clusterAll,
		serviceCount, version, place, within))
	require.True(t, g.apply(g.ctx, serviceJob, definition, 20*time.Second), "version %s is applied", version)
}

// apply puts a definition in force, again until that is acknowledged.
func (in *installation) apply(ctx context.Context, job string, definition any, limit time.Duration) bool {
	for try, end := 0, time.Now().Add(limit); time.Now().Before(end); try++ {
		status, err := in.call(try, http.MethodPut, jobsPath+job, definition, nil)
		if err == nil && status < 300 {
			return true
		}
		if !pause(ctx, 200*time.Millisecond) {
			break
		}
	}
	return false
}

// deployed waits until a version is deployed. It returns all deployments, and what is wrong where it is not in time, or
// has ended in another way.
func (in *installation) deployed(ctx context.Context, job string, version int, limit time.Duration) (
	all []api.Deployment, problem string,
) {
	last := api.Deployment{}
	for end := time.Now().Add(limit); time.Now().Before(end) && pause(ctx, 50*time.Millisecond); {
		var seen struct{ Deployments []api.Deployment }
		answered, err := in.call(0, http.MethodGet, jobsPath+job, nil, &seen)
		if err != nil || answered != http.StatusOK || len(seen.Deployments) == 0 {
			continue
		}
		all, last = seen.Deployments, seen.Deployments[len(seen.Deployments)-1]
		if last.Version == version && !last.Active() {
			break
		}
	}
	if last.Version == version && last.Status == api.DeploymentSuccessful {
		return all, ""
	}
	return all, fmt.Sprintf("version %d is not in force: the last deployment is %+v", version, last)
}

// fewest is how few instances of the service ran at a time from since on, by the ledger, and how many run now.
func (g *stage) fewest(t *testing.T, since int64) (fewest, now int) {
	t.Helper()
	lines, err := g.book.read()
	require.NoError(t, err)
	lines = slices.Clone(lines)
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(a.NS, b.NS) })
	fewest = -1
	for _, l := range lines {
		if !strings.HasPrefix(l.Task, serviceJob+jobs.InstanceMark) {
			continue
		}
		if fewest < 0 && l.NS > since {
			fewest = now
		}
		switch l.Kind {
		case lineBegin:
			now++
		case lineEnd:
			now--
		}
		if fewest >= 0 {
			fewest = min(fewest, now)
		}
	}
	if fewest < 0 {
		fewest = now
	}
	return fewest, now
}

// short is what is wrong if an instance was missing since then. One that was lost with its agent is no fault of a
// rollout: on a machine with much to do, a slow agent is given up.
func (g *stage) short(t *testing.T, since int64) []string {
	t.Helper()
	fewest, _ := g.fewest(t, since)
	if fewest >= serviceCount {
		return nil
	}
	lines, err := g.book.read()
	require.NoError(t, err)
	for _, l := range lines {
		if l.Kind != lineBegin || !strings.HasPrefix(l.Task, serviceJob+jobs.InstanceMark) {
			continue
		}
		var task apiTask
		_, err := g.call(0, http.MethodGet, tasksPath+"/"+l.Task, nil, &task)
		if err == nil && slices.ContainsFunc(task.Attempts, func(a api.Attempt) bool {
			return a.Outcome == api.AttemptLost
		}) {
			t.Logf("%d instances ran at a time: %s was lost with its agent", fewest, l.Task)
			return nil
		}
	}
	return []string{fmt.Sprintf("only %d of %d instances ran at a time", fewest, serviceCount)}
}

// rollout deploys a version that no agent can run, which is put back, and one that is good, in the middle of which the
// control plane is killed. No instance is missing all the time.
func rollout(t *testing.T, g *stage) []string {
	g.serve(t, "one", patient, "")
	if _, problem := g.deployed(g.ctx, serviceJob, 1, 30*time.Second); problem != "" {
		return []string{problem}
	}
	begun := monotonic()
	g.serve(t, "two", "1s", `"capabilities": ["none-has"]`)
	all, problem := g.deployed(g.ctx, serviceJob, 3, 15*time.Second)
	switch {
	case problem != "":
		return append(g.short(t, begun), "version 2 was not put back: "+problem)
	case all[1].RevertedTo != 1:
		return []string{fmt.Sprintf("version 2 was not put back: %+v", all[1])}
	}
	if problems := g.short(t, begun); len(problems) > 0 {
		return problems
	}
	again := monotonic()
	g.serve(t, "four", patient, "")
	_, found := g.await(20*time.Second, func(l line) bool {
		return l.Kind == lineBegin && strings.HasPrefix(l.Task, serviceJob+jobs.InstanceMark) && l.NS > again
	})
	require.True(t, found, "the new version begins")
	g.planes[0].current().kill()
	g.planes[0].up()
	g.awaitReady(t, 0)
	if _, problem := g.deployed(g.ctx, serviceJob, 4, 60*time.Second); problem != "" {
		return []string{problem}
	}
	// The restarted hub hears of a cancellation with the next attempt heartbeat, which is every 20 s.
	for end := time.Now().Add(45 * time.Second); ; {
		_, now := g.fewest(t, again)
		if now == serviceCount {
			return g.short(t, begun)
		}
		if time.Now().After(end) || !pause(g.ctx, 50*time.Millisecond) {
			return []string{fmt.Sprintf("%d of %d instances run after the rollout: %s", now, serviceCount, g.instances(t))}
		}
	}
}

// instances tells what became of the service's instances: their lines in the ledger, and their tasks.
func (g *stage) instances(t *testing.T) string {
	t.Helper()
	lines, err := g.book.read()
	require.NoError(t, err)
	var told strings.Builder
	shown := map[string]bool{}
	for _, l := range lines {
		if !strings.HasPrefix(l.Task, serviceJob+jobs.InstanceMark) {
			continue
		}
		fmt.Fprintf(&told, "\n%+v", l)
		if shown[l.Task] {
			continue
		}
		shown[l.Task] = true
		var task json.RawMessage
		status, err := g.call(0, http.MethodGet, tasksPath+"/"+l.Task, nil, &task)
		fmt.Fprintf(&told, "\n%d %v %s", status, err, task)
	}
	return told.String()
}

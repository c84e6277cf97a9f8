package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// neighbours are two tenants of one cluster, whose agent keeps what it was given.
type neighbours struct {
	*secured
	acme, beta string // tokens
	got        sync.Map
}

func newNeighbours(t *testing.T) *neighbours {
	t.Helper()
	n := &neighbours{secured: newSecured(t, plane.NodeOptions{})}
	join := n.token(t, api.TokenRequest{Name: "agents", Kind: api.TokenJoin, Cluster: n.cluster})
	keep := func(_ context.Context, task *agent.Task) (any, error) {
		n.got.Store(string(task.Payload), true)
		return nil, nil
	}
	startAgent(t, agent.Options{HubURLs: []string{n.URL}, Cluster: n.cluster, ID: plane.UniqueID("a"), Slots: 8,
		JoinToken: join.Secret},
		map[string]agent.Handler{"keep": keep})
	n.acme = n.token(t, api.TokenRequest{Name: "acme", Role: api.RoleOperator, Tenant: "acme"}).Secret
	n.beta = n.token(t, api.TokenRequest{Name: "beta", Role: api.RoleOperator, Tenant: "beta"}).Secret
	return n
}

// task is a task of the cluster with a payload and fields of its own.
func (n *neighbours) task(payload string, more map[string]any) map[string]any {
	task := map[string]any{"type": "keep", "cluster": n.cluster, "payload": payload}
	for field, value := range more {
		task[field] = value
	}
	return task
}

// schedule makes a schedule that only a trigger fires; the Temporal of the tests ends with them.
func (n *neighbours) schedule(t *testing.T, token, name, payload string) {
	t.Helper()
	status, p := n.ask(t, token, http.MethodPost, "/schedules",
		map[string]any{"name": name, "cron": "0 0 1 1 *", "task": n.task(payload, nil)}, nil)
	require.Equal(t, http.StatusCreated, status, "%+v", p)
}

// fire fires a schedule and waits until its task is done, which the tenant sees and the agent was given.
func (n *neighbours) fire(t *testing.T, token, name, payload string) string {
	t.Helper()
	status, p := n.ask(t, token, http.MethodPost, "/schedules/"+name+"/trigger", nil, nil)
	require.Equal(t, http.StatusAccepted, status, "%+v", p)
	var schedule api.Schedule
	require.Eventually(t, func() bool {
		status, _ := n.ask(t, token, http.MethodGet, "/schedules/"+name, nil, &schedule)
		return status == http.StatusOK && len(schedule.Runs) == 1 && schedule.Runs[0].Status == api.TaskCompleted
	}, patience, 50*time.Millisecond, "the firing ends")
	var made api.Task
	status, p = n.ask(t, token, http.MethodGet, "/tasks/"+schedule.Runs[0].TaskID, nil, &made)
	require.Equal(t, http.StatusOK, status, "%+v", p)
	require.Equal(t, schedule.Name, made.Schedule)
	_, given := n.got.Load(`"` + payload + `"`)
	require.True(t, given, "the agent was given the task of the firing")
	return made.ID
}

func TestATenantCannotTakeIDsThatAreMade(t *testing.T) {
	t.Parallel()
	n := newNeighbours(t)
	t.Run("of firings", func(t *testing.T) {
		name := plane.UniqueID("nightly")
		n.schedule(t, n.beta, name, "backup of beta")
		// The tasks that take the ids wait for an agent that never comes, so that they cost the shared Temporal little.
		var taken []any
		begun, nobody := time.Now().UTC(), plane.UniqueID("nobody")
		for second := range 30 {
			at := strings.ToLower(begun.Add(time.Duration(second) * time.Second).Format("20060102T150405Z"))
			for _, id := range []string{name + "-" + at, name + "@" + at, "beta:" + name + "@" + at} {
				taken = append(taken, n.task("taken", map[string]any{"id": id, "agent": nobody}))
			}
		}
		status, p := n.ask(t, n.acme, http.MethodPost, "/tasks/batch", taken, nil)
		require.Equal(t, http.StatusAccepted, status, "%+v", p)
		require.Less(t, time.Since(begun), 25*time.Second, "the firing comes within the times that are taken")
		n.fire(t, n.beta, name, "backup of beta")
	})
	t.Run("of keys", func(t *testing.T) {
		key := plane.UniqueID("order")
		hash := sha256.Sum256([]byte("beta\x00" + n.cluster + "\x00" + key + "\x00"))
		made := hex.EncodeToString(hash[:20])
		for _, id := range []string{"k-" + made, "key@" + made, "beta:key@" + made} {
			n.ask(t, n.acme, http.MethodPost, "/tasks", n.task("taken", map[string]any{"id": id}), nil)
		}
		status, p := n.ask(t, n.beta, http.MethodPost, "/tasks",
			n.task("order of beta", map[string]any{"idempotency_key": key}), nil)
		require.Equal(t, http.StatusAccepted, status, "%+v", p)
	})
}

func TestTenantsHaveTheSameIDsKeysAndNames(t *testing.T) {
	t.Parallel()
	n := newNeighbours(t)
	for field, value := range map[string]string{"id": plane.UniqueID("one"),
		"idempotency_key": plane.UniqueID("order")} {
		t.Run(field, func(t *testing.T) {
			ids := map[string]string{}
			for tenant, token := range map[string]string{"acme": n.acme, "beta": n.beta} {
				payload := tenant + " by " + field
				var done taskDone
				status, p := n.ask(t, token, http.MethodPost, "/tasks", n.task(payload, map[string]any{field: value}),
					&done)
				require.Equal(t, http.StatusAccepted, status, "%+v", p)
				status, p = n.ask(t, token, http.MethodGet, "/tasks/"+done.ID+"?wait=20s", nil, &done)
				require.Equal(t, http.StatusOK, status, "%+v", p)
				require.Equal(t, api.TaskCompleted, done.Status, done.Why)
				_, given := n.got.Load(`"` + payload + `"`)
				require.True(t, given)
				ids[tenant] = done.ID
			}
			require.True(t, strings.HasPrefix(ids["acme"], "acme:"), ids["acme"])
			require.True(t, strings.HasPrefix(ids["beta"], "beta:"), ids["beta"])
		})
	}
	t.Run("schedule", func(t *testing.T) {
		name := plane.UniqueID("nightly")
		for tenant, token := range map[string]string{"acme": n.acme, "beta": n.beta} {
			n.schedule(t, token, name, tenant+" by schedule")
		}
		for tenant, token := range map[string]string{"acme": n.acme, "beta": n.beta} {
			made := n.fire(t, token, name, tenant+" by schedule")
			require.True(t, strings.HasPrefix(made, tenant+":"+name+"@"), made)
		}
	})
}

// TestATenantCannotTellWhatAnotherHas asks for what another tenant has and for what nobody has: the answers are the
// same.
func TestATenantCannotTellWhatAnotherHas(t *testing.T) {
	t.Parallel()
	n := newNeighbours(t)
	name := plane.UniqueID("mine")
	n.schedule(t, n.beta, name, "never")
	status, p := n.ask(t, n.beta, http.MethodPost, "/tasks", n.task("mine", map[string]any{"id": name}), nil)
	require.Equal(t, http.StatusAccepted, status, "%+v", p)
	schedule := map[string]any{"interval": "1h", "task": n.task("x", nil)}
	for _, c := range []struct {
		method, path string
		body         map[string]any
		code         string
	}{
		{http.MethodGet, "/tasks/ID", nil, protocol.CodeUnknownTask},
		{http.MethodGet, "/tasks/ID/log", nil, protocol.CodeUnknownTask},
		{http.MethodPost, "/tasks/ID/cancel", nil, protocol.CodeUnknownTask},
		{http.MethodPost, "/tasks", n.task("x", map[string]any{"id": "ID"}), protocol.CodeUnknownTask},
		{http.MethodGet, "/schedules/ID", nil, protocol.CodeUnknownSchedule},
		{http.MethodPut, "/schedules/ID", schedule, protocol.CodeUnknownSchedule},
		{http.MethodPost, "/schedules/ID/trigger", nil, protocol.CodeUnknownSchedule},
		{http.MethodDelete, "/schedules/ID", nil, protocol.CodeUnknownSchedule},
		{http.MethodPost, "/schedules", map[string]any{"name": "ID", "interval": "1h", "task": n.task("x", nil)},
			protocol.CodeUnknownSchedule},
	} {
		var answers []protocol.Problem
		for _, id := range []string{"beta:" + name, "beta:" + plane.UniqueID("none")} {
			body := map[string]any{}
			for field, value := range c.body {
				if value == "ID" {
					value = id
				}
				body[field] = value
			}
			var send any = body
			if c.body == nil {
				send = nil
			}
			status, p := n.ask(t, n.acme, c.method, strings.Replace(c.path, "ID", id, 1), send, nil)
			require.Equal(t, http.StatusNotFound, status, "%s %s: %+v", c.method, c.path, p)
			require.Equal(t, c.code, p.Code)
			answers = append(answers, p)
		}
		require.Equal(t, answers[0], answers[1], "%s %s", c.method, c.path)
	}
	for path, want := range map[string]int{"/tasks/beta:": http.StatusOK, "/schedules/beta:": http.StatusOK,
		"/tasks/": http.StatusNotFound, "/schedules/": http.StatusNotFound} {
		status, p := n.ask(t, firstAdmin, http.MethodGet, path+name, nil, nil)
		require.Equal(t, want, status, "a caller of all tenants says the full id: %s: %+v", path, p)
	}
}

//go:build linux

package chaos

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"mainstay.dev/sdk/api"
)

// agentLook is what the driver reads of an agent.
type agentLook struct {
	ID      string          `json:"id"`
	Cluster string          `json:"cluster"`
	Status  api.AgentStatus `json:"status"`
	Reason  string          `json:"status_reason"`
	Hub     string          `json:"hub"`
	Health  api.HealthLevel `json:"health"`
	Slots   int             `json:"effective_slots"`
	Max     int             `json:"max_tasks"`
}

// out reports whether the agent is kept from work, by healing or by an operator.
func (a *agentLook) out(byHealing bool) bool {
	return (a.Status == api.AgentDraining || a.Status == api.AgentMaintenance) &&
		strings.HasPrefix(a.Reason, "healing: ") == byHealing
}

// treated reports whether healing shows to have done something about the agent.
func (a *agentLook) treated() bool { return a.out(true) || a.Slots < a.Max }

// fleetLook is one look at all agents. It has none when the API did not answer.
type fleetLook struct {
	asked  int64     // when it was asked for, on the monotonic clock: what it shows was so then or later
	wall   time.Time // the same by the clock on the wall
	at     int64     // when it was answered
	agents []agentLook
}

func (l *fleetLook) of(id string) *agentLook {
	for i := range l.agents {
		if l.agents[i].ID == id {
			return &l.agents[i]
		}
	}
	return nil
}

// lookEvery spaces the looks at the fleet.
const lookEvery = 250 * time.Millisecond

// look asks a process of the control plane for all agents.
func (in *installation) look(i int) fleetLook {
	var listed struct {
		Agents []agentLook `json:"agents"`
	}
	seen := fleetLook{asked: monotonic(), wall: time.Now()}
	status, err := in.call(i, http.MethodGet, "/api/v1/agents", nil, &listed)
	if err == nil && status == http.StatusOK {
		seen.agents = listed.Agents
	}
	seen.at = monotonic()
	return seen
}

// fleetWatch looks at all agents all the time.
type fleetWatch struct {
	mu    sync.Mutex
	looks []fleetLook
	stop  func()
}

func (in *installation) watchFleet(ctx context.Context, t testing.TB) *fleetWatch {
	w := &fleetWatch{}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; pause(ctx, lookEvery); i++ {
			seen := in.look(i)
			w.mu.Lock()
			w.looks = append(w.looks, seen)
			w.mu.Unlock()
		}
	})
	w.stop = func() { cancel(); wg.Wait() }
	t.Cleanup(w.stop)
	return w
}

// newest is the newest look at an agent; nil when the API did not answer, or does not know it.
func (w *fleetWatch) newest(id string) *agentLook {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.looks) == 0 {
		return nil
	}
	return w.looks[len(w.looks)-1].of(id)
}

// answered reports whether the API has shown all agents within this time.
func (w *fleetWatch) answered(within time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.looks) == 0 {
		return false
	}
	last := &w.looks[len(w.looks)-1]
	return len(last.agents) > 0 && time.Duration(monotonic()-last.at) < within
}

func (w *fleetWatch) all() []fleetLook {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.looks[:len(w.looks):len(w.looks)]
}

// healingActions are all actions of healing so far, newest first.
func (in *installation) healingActions() ([]api.HealingRecord, error) {
	var all []api.HealingRecord
	path := "/api/v1/agents/healing/actions?page_size=200"
	for token := ""; ; {
		var page struct {
			Actions []api.HealingRecord `json:"actions"`
			Next    string              `json:"next_page_token"`
		}
		status, err := in.call(0, http.MethodGet, path+token, nil, &page)
		if err != nil || status != http.StatusOK {
			return nil, fmt.Errorf("list healing actions: status %d, %w", status, err)
		}
		all = append(all, page.Actions...)
		if page.Next == "" {
			return all, nil
		}
		token = "&page_token=" + page.Next
	}
}

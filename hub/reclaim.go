package hub

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
)

// reclaim gives up the members that the clusters count on this hub and that did not come back to it after it started, or
// after it was out of touch with Temporal: nobody else would notice that they died meanwhile. It looks once the agents
// had the failure threshold to come back, and then waits until it is asked again.
func (h *Hub) reclaim() {
	for {
		h.pause(h.config.Timing.FailureThreshold)
		if h.run.Err() != nil {
			return
		}
		for wait := time.Second; ; wait = min(2*wait, 30*time.Second) {
			err := h.giveUpMissing()
			if err == nil || h.run.Err() != nil {
				break
			}
			h.log.Warn("The members of an earlier run were not looked at; trying again", zap.Error(err))
			h.pause(wait)
		}
		select {
		case <-h.reclaimAgain:
		case <-h.run.Done():
			return
		}
	}
}

// giveUpMissing reports every member that is counted on this hub and has no session here.
func (h *Hub) giveUpMissing() error {
	ctx, cancel := context.WithTimeout(h.run, 30*time.Second)
	defer cancel()
	return contract.EachCluster(ctx, h.client, h.namespace, h.giveUpMissingOf)
}

func (h *Hub) giveUpMissingOf(ctx context.Context, workflowID string) error {
	value, err := h.client.QueryWorkflow(ctx, workflowID, "", contract.ViewQuery)
	if err != nil {
		return fmt.Errorf("query %s: %w", workflowID, err)
	}
	var view contract.ClusterView
	if err := value.Get(&view); err != nil {
		return fmt.Errorf("read %s: %w", workflowID, err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range view.Members {
		m := &view.Members[i]
		if m.Hub != h.id || !m.Serving() {
			continue
		}
		if s := h.sessions[m.AgentID]; s != nil && s.epoch >= m.Epoch {
			continue
		}
		h.notices.transition(view.Config.Name, fleet.Transition{
			AgentID: m.AgentID, Instance: m.Instance, Epoch: m.Epoch, Status: fleet.AgentOffline, At: time.Now().UTC(),
			Reason: "it did not come back after its hub restarted",
		})
	}
	return nil
}

// reclaimSoon asks for another look. The mutex may be held.
func (h *Hub) reclaimSoon() {
	select {
	case h.reclaimAgain <- struct{}{}:
	default:
	}
}

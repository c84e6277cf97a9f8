package agent

import (
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"time"

	"mainstay.dev/sdk/api"
)

// Status is the agent's own view of its state.
type Status struct {
	Status        string   `json:"status"` // healthy, unhealthy or stopping
	AgentID       string   `json:"agent_id"`
	Cluster       string   `json:"cluster"`
	Role          api.Role `json:"role,omitempty"` // absent while it has none
	UptimeSeconds int64    `json:"uptime_seconds"`
	// ActiveLeases counts the leadership and the shards that it holds now.
	ActiveLeases int `json:"active_leases"`
	// LastHeartbeatSuccess: a hub answered the newest heartbeat. LastHeartbeat is when a hub last answered one.
	LastHeartbeatSuccess bool       `json:"last_heartbeat_success"`
	LastHeartbeat        *time.Time `json:"last_heartbeat,omitempty"`
	// MetadataStoreConnected: the hub in use is in touch with Temporal, where all state is kept.
	MetadataStoreConnected bool `json:"metadata_store_connected"`
	RunningTasks           int  `json:"running_tasks"`
	MaxTasks               int  `json:"max_tasks"`
}

// Values of Status.Status.
const (
	StatusHealthy   = "healthy"
	StatusUnhealthy = "unhealthy"
	StatusStopping  = "stopping" // it takes nothing new, finishes what it has, and leaves
)

// beat is the newest heartbeat.
type beat struct {
	at               time.Time // when one was last answered
	failureThreshold time.Duration
	answered         bool
	storeAway        bool // the hub reported that it has lost touch with Temporal
}

// missed records that a heartbeat was not answered.
func (r *run) missed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.beat.answered = false
}

// Status returns the agent's state. It is healthy while it has a session with a hub that is in touch with Temporal and
// has no reason yet to give it up. It may be called at any time.
func (a *Agent) Status() Status {
	s := Status{Status: StatusUnhealthy, AgentID: a.options.ID, Cluster: a.options.Cluster, MaxTasks: a.options.Slots}
	a.mu.Lock()
	r := a.run
	a.mu.Unlock()
	if r == nil {
		return s
	}
	s.Role = r.currentRole()
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	s.UptimeSeconds = int64(now.Sub(r.startedAt).Seconds())
	s.RunningTasks = len(r.attempts)
	if s.Role != "" {
		s.ActiveLeases = len(r.role.Shards)
	}
	if s.Role == api.RoleLeader {
		s.ActiveLeases++
	}
	b := r.beat
	if !b.at.IsZero() {
		s.LastHeartbeat = new(b.at.UTC())
	}
	ended := r.loopCtx.Err() != nil
	s.LastHeartbeatSuccess = b.answered && !ended
	s.MetadataStoreConnected = s.LastHeartbeatSuccess && !b.storeAway
	inTime := !b.at.IsZero() && now.Sub(b.at) < b.failureThreshold
	if inTime && !ended && !b.storeAway {
		s.Status = StatusHealthy
	}
	if r.stopping && !ended {
		s.Status = StatusStopping
	}
	return s
}

// HealthHandler serves the agent's status for probes: /health and /readyz answer 200 when it is healthy, else 503;
// /healthz always 200. Use /healthz for liveness, since a restart of the agent does not bring a hub back. Only this
// machine learns who the agent is and what it does. Requests for another host's name are refused, because web pages can
// send them.
func (a *Agent) HealthHandler() http.Handler {
	serve := func(always bool) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if !ownHost(r.Host) {
				http.Error(w, "ask for this by an address, or by the name of this machine", http.StatusForbidden)
				return
			}
			status := a.Status()
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Cache-Control", "no-store")
			if !always && status.Status != StatusHealthy {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			var body any = status
			if from, err := netip.ParseAddrPort(r.RemoteAddr); err != nil || !from.Addr().Unmap().IsLoopback() {
				body = struct {
					Status                 string     `json:"status"`
					UptimeSeconds          int64      `json:"uptime_seconds"`
					LastHeartbeatSuccess   bool       `json:"last_heartbeat_success"`
					LastHeartbeat          *time.Time `json:"last_heartbeat,omitempty"`
					MetadataStoreConnected bool       `json:"metadata_store_connected"`
				}{status.Status, status.UptimeSeconds, status.LastHeartbeatSuccess, status.LastHeartbeat,
					status.MetadataStoreConnected}
			}
			_ = json.NewEncoder(w).Encode(body) // the client went away
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", serve(false))
	mux.HandleFunc("GET /readyz", serve(false))
	mux.HandleFunc("GET /healthz", serve(true))
	return mux
}

// ownHost reports whether the host of a request is an address, or a name that this machine has itself.
func ownHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	own, _ := os.Hostname()
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil || strings.EqualFold(host, "localhost") || own != "" && strings.EqualFold(host, own)
}

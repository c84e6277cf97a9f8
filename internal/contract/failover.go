package contract

import (
	"strconv"
	"strings"
	"time"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/healing"
	"mainstay.dev/sdk/api"
)

// ManualFailover asks to move the work of an agent away. It is what operators send with tctl or temporal:
//
//	temporal workflow signal --workflow-id cluster/default --name manual-failover --input '{"agent_id": "agent-1"}'
type ManualFailover struct {
	AgentID string `json:"agent_id"`
	// TargetAgentID takes over; empty: the cluster's strategy selects.
	TargetAgentID string `json:"target_agent_id,omitempty"`
	// RequiredCapabilities are what the target must have.
	RequiredCapabilities []string `json:"required_capabilities,omitempty"`
	// TaskTypes are the types of the work; left out: the types that the agent handles.
	TaskTypes []string `json:"task_types,omitempty"`
	// Affinity names agents, groups or zones to prefer, the first most.
	Affinity []string `json:"affinity,omitempty"`
	Reason   string   `json:"reason,omitempty"`
	// Healing is healing's decision, if healing asks; the cluster refuses it when its reasons no longer hold.
	Healing *healing.HealingCheck `json:"healing,omitempty"`
}

// FailoverInput starts a Failover workflow, a child of the agent's Cluster.
type FailoverInput struct {
	Cluster     string `json:"cluster"`
	FailedAgent string `json:"failed_agent_id"`
	Instance    string `json:"instance_id,omitempty"`
	Epoch       int64  `json:"epoch"`
	// Again counts the earlier failovers of the same session.
	Again   int                 `json:"again,omitempty"`
	Hub     string              `json:"hub,omitempty"`
	Trigger api.FailoverTrigger `json:"trigger"`
	Reason  string              `json:"reason,omitempty"`
	// Target takes over; empty when no single agent does.
	Target string `json:"target_agent_id,omitempty"`
	// AnyTarget says, without a Target, that other agents are online and take the tasks and shards.
	AnyTarget bool `json:"any_target,omitempty"`
	// NotInCluster says that the agent is no member.
	NotInCluster bool `json:"not_in_cluster,omitempty"`
	// WasLeader and Shards are the roles that must move.
	WasLeader bool  `json:"was_leader,omitempty"`
	Shards    []int `json:"shards,omitempty"`
	// Targets are the deployment targets that move with them.
	Targets []string `json:"targets,omitempty"`
	// Attempts were under way on the agent, at most api.MaxTransfers of them; Unlisted counts the others.
	Attempts []cluster.HeldAttempt `json:"attempts,omitempty"`
	Unlisted int                   `json:"unlisted,omitempty"`
	// NoticedAt is when the hub gave the agent up, or the failover was asked for.
	NoticedAt time.Time `json:"noticed_at"`
	// Evidence and NoticedAfter are as in the record.
	Evidence     api.Evidence `json:"evidence,omitempty"`
	NoticedAfter api.Duration `json:"noticed_after,omitempty"`
	Timeout      api.Duration `json:"timeout,omitempty"`
	// StateKept says that members keep state, which is synced when one is promoted.
	StateKept bool `json:"state_kept,omitempty"`
}

// ID is the failover's id; several of one session have different ones.
func (f *FailoverInput) ID() string {
	id := FailoverID(f.Cluster, f.FailedAgent, f.Epoch)
	if f.Again > 0 {
		id += "." + strconv.Itoa(f.Again+1)
	}
	return id
}

// Idle says that the agent was lost without work, and did not lead. If it had shards, the cluster gives them to others
// in any case.
func (f *FailoverInput) Idle() bool {
	return f.Trigger != api.TriggerManual && len(f.Attempts) == 0 && !f.WasLeader
}

// Messages of failovers.
var (
	// FailoverQuery answers while the failover runs and after; the workflow also returns the record.
	FailoverQuery = Query[api.FailoverRecord]{"record"}
	// ManualFailoverSignal may also come as plain JSON from tctl or temporal.
	ManualFailoverSignal = Signal[ManualFailover]{"manual-failover"}
	EvacuatedSignal      = Signal[Evacuated]{"evacuated"}
	// EvacuateActivity runs on a hub's own queue and takes an agent's work off it.
	EvacuateActivity = Activity[EvacuateInput, EvacuateResult]{"Evacuate"}
	// AwaitTransfersActivity watches the tasks and roles of a failed agent until others have them.
	AwaitTransfersActivity = Activity[AwaitTransfersInput, AwaitTransfersResult]{"AwaitTransfers"}
	// CountFailoverActivity counts a finished failover in the worker's metrics.
	CountFailoverActivity = Activity[api.FailoverRecord, None]{"CountFailover"}
)

// EvacuateInput is the input of EvacuateActivity.
type EvacuateInput struct {
	AgentID  string `json:"agent_id"`
	Instance string `json:"instance_id"`
	Epoch    int64  `json:"epoch"`
	Target   string `json:"target_agent_id,omitempty"`
	Reason   string `json:"reason"`
	// Roles are taken off it too: it has read that it has none any more, or is gone, before the answer.
	Roles bool `json:"roles,omitempty"`
	// KeepSystem leaves instances of jobs that have one on each agent.
	KeepSystem bool `json:"keep_system,omitempty"`
	// Moves are the only attempts to take off it, each for its own target; they may go on for a moment after the
	// answer. It comes from a gateway then, as an activity without a workflow.
	Moves []api.RebalanceMove `json:"moves,omitempty"`
}

// EvacuateID is the id of an evacuation by a gateway. nonce makes it unique.
func EvacuateID(agent, nonce string) string { return "evacuate/" + agent + "/" + nonce }

// EvacuateResult lists what was taken off the agent. Its work has certainly stopped.
type EvacuateResult struct {
	Attempts []cluster.HeldAttempt `json:"attempts,omitempty"`
}

// Evacuated informs a cluster that an agent's work has stopped, so that its roles are free at once.
type Evacuated struct {
	AgentID string `json:"agent_id"`
	// Hub is the one that took its roles off it.
	Hub    string `json:"hub,omitempty"`
	Epoch  int64  `json:"epoch"`
	Target string `json:"target_agent_id,omitempty"`
}

// AwaitTransfersInput is the input of AwaitTransfersActivity.
type AwaitTransfersInput struct {
	Cluster     string                `json:"cluster"`
	FailedAgent string                `json:"failed_agent_id"`
	Epoch       int64                 `json:"epoch"`
	WasLeader   bool                  `json:"was_leader,omitempty"`
	Shards      []int                 `json:"shards,omitempty"`
	Attempts    []cluster.HeldAttempt `json:"attempts,omitempty"`
	Reason      string                `json:"reason,omitempty"`
	// Timeout ends the watch; its result then lists what has not moved.
	Timeout api.Duration `json:"timeout,omitempty"`
}

// AwaitTransfersResult is who has the failed agent's work and roles now.
type AwaitTransfersResult struct {
	Transfers []api.Transfer  `json:"transfers,omitempty"`
	Promoted  string          `json:"promoted,omitempty"`
	Epoch     int64           `json:"leader_epoch,omitempty"`
	Shards    []api.ShardMove `json:"shards,omitempty"`
	// ResumedAt is when all that moved was running elsewhere and the new leader led; absent: that is not known.
	ResumedAt *time.Time `json:"resumed_at,omitempty"`
	// Incomplete says what had not moved when the time was over.
	Incomplete string `json:"incomplete,omitempty"`
	// NoTarget says that shards wait, since no agent is online any more.
	NoTarget bool `json:"no_target,omitempty"`
}

// FailoverID names a failover in the REST API: "<cluster>:<agent>:<epoch>", and then ".2" for the second one of the
// same session.
func FailoverID(cluster, agent string, epoch int64) string {
	return cluster + ":" + agent + ":" + strconv.FormatInt(epoch, 10)
}

// NextFailoverID is the id of the next failover of a member, if of its session that many came before.
func NextFailoverID(clusterName string, m *cluster.Member, before int) string {
	next := FailoverInput{Cluster: clusterName, FailedAgent: m.AgentID, Epoch: m.Epoch, Again: before}
	return next.ID()
}

// ParseFailoverID names the session of the failover with an id; ok is false if id is not a failover's.
func ParseFailoverID(id string) (cluster, agent string, epoch int64, ok bool) {
	parts := strings.Split(id, ":")
	if len(parts) != 3 || api.ValidateID("cluster", parts[0]) != nil || api.ValidateID("agent", parts[1]) != nil {
		return "", "", 0, false
	}
	session, loss, again := strings.Cut(parts[2], ".")
	epoch, err := strconv.ParseInt(session, 10, 64)
	if err != nil || epoch < 0 || strconv.FormatInt(epoch, 10) != session {
		return "", "", 0, false
	}
	if n, err := strconv.Atoi(loss); again && (err != nil || n < 2 || strconv.Itoa(n) != loss) {
		return "", "", 0, false
	}
	return parts[0], parts[1], epoch, true
}

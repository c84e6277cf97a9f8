package contract

import (
	"slices"
	"strings"
	"time"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
)

// ClusterInput starts a Cluster workflow. State is carried over continue-as-new and nil at first.
type ClusterInput struct {
	Config api.ClusterConfig `json:"config"`
	State  *cluster.Cluster  `json:"state,omitempty"`
	// CreatedAt is carried with State.
	CreatedAt time.Time `json:"created_at,omitzero"`
	// Events are the newest; carried with State.
	Events *cluster.EventLog `json:"events,omitempty"`
	// Resend: some hubs lack the newest directive, so all get it. FormerHubs lack it and may have no members. Carried
	// with State.
	Resend     bool     `json:"resend,omitempty"`
	FormerHubs []string `json:"former_hubs,omitempty"`
	// IdleFailovers were not begun: at most MaxIdleFailovers, of agents that were lost without work. They are
	// dropped where the state leaves them no room.
	IdleFailovers []FailoverInput `json:"idle_failovers,omitempty"`
}

// MaxIdleFailovers bounds the IdleFailovers. Further lost agents have none.
const MaxIdleFailovers = 1000

// Messages of the Cluster workflow.
var (
	ViewQuery       = Query[ClusterView]{"view"}
	JoinUpdate      = Update[JoinRequest, JoinResponse]{"join"}
	ConfigureUpdate = Update[ConfigureRequest, Done]{"configure"}
	OpenLaneUpdate  = Update[OpenLaneRequest, None]{"open-lane"}
	// AgentLanesQuery answers which agents' own lanes are open. CloseAgentLanesUpdate closes some of them.
	AgentLanesQuery       = Query[AgentLanes]{"agent-lanes"}
	CloseAgentLanesUpdate = Update[[]cluster.OpenLane, AgentLanes]{"close-agent-lanes"}
	// OpenAgentLaneSignal opens the lane of the agent of this id; see workflows.RunTask.
	OpenAgentLaneSignal = Signal[string]{"open-agent-lane"}
	// DeleteUpdate is refused while members are online.
	DeleteUpdate = Update[DeleteRequest, None]{"delete"}
	// ForgetUpdate is refused while the agent is connected.
	ForgetUpdate = Update[ForgetRequest, None]{"forget-agent"}
	// DeadUpdate is refused when the proof is about another process than the agent's newest.
	DeadUpdate = Update[cluster.DeathProof, None]{"agent-dead"}
	// PauseUpdate answers once the hubs have heard.
	PauseUpdate        = Update[PauseRequest, Done]{"pause"}
	ResumeUpdate       = Update[PauseRequest, Done]{"resume"}
	ReleaseBrakeUpdate = Update[ReleaseBrakeRequest, None]{"release-brake"}
	// MissUpdate reports whom a hub misses. The directive that it answers has the brake's judgement.
	MissUpdate = Update[Missing, Directive]{"miss"}
	// RevokeJoinTokenUpdate keeps agents with a token out, and answers once the hubs have heard.
	RevokeJoinTokenUpdate = Update[RevokeJoinTokenRequest, RevokedJoinToken]{"revoke-join-token"}
	MembersChangedSignal  = Signal[MembersChanged]{"members-changed"}
	HubLostSignal         = Signal[HubLost]{"hub-lost"}
	// WatchMembersSignal makes the cluster send AgentsMovedSignal to the job of this full name, until the job is
	// deleted: whenever agents of the cluster came, went, stopped getting work, or changed their profile.
	WatchMembersSignal = Signal[string]{"watch-members"}
)

// Requests of a cluster to others.
var (
	// DirectActivity runs on a hub's own queue and hands it a cluster's directive.
	DirectActivity = Activity[Directive, None]{"Direct"}
	// ReleaseBrakeActivity runs on a hub's own queue and gives up the agents that the mass-loss brake held on to.
	ReleaseBrakeActivity = Activity[ReleaseBrakeRequest, None]{"ReleaseBrake"}
	// UsedLanesActivity finds the lanes that are used.
	UsedLanesActivity = Activity[UsedLanesInput, []string]{"UsedLanes"}
	// ReadLoadsActivity reads how many tasks each agent of the cluster of this name runs.
	ReadLoadsActivity = Activity[string, map[string]int]{"ReadLoads"}
)

// JoinRequest registers or re-attaches a batch of agents of one hub.
type JoinRequest struct {
	Hub string `json:"hub"`
	// HubProcess is the hub's process.
	HubProcess string         `json:"hub_process,omitempty"`
	Joins      []cluster.Join `json:"joins"`
	// Knows is the directive that the hub has; zero: none.
	Knows DirectiveVersion `json:"knows,omitzero"`
}

// JoinResponse answers each join in order. It has no directive when the hub knows the present one.
type JoinResponse struct {
	Results   []cluster.Joined `json:"results"`
	Directive *Directive       `json:"directive,omitempty"`
}

// ToCluster is a request with the cluster that an activity sends it to.
type ToCluster[Request any] struct {
	Cluster string  `json:"cluster"`
	Request Request `json:"request"`
}

type (
	// ClusterCordon is the input of CordonActivity.
	ClusterCordon = ToCluster[CordonRequest]
	// ClusterUncordon is the input of UncordonActivity.
	ClusterUncordon = ToCluster[UncordonRequest]
	// ClusterReduceLoad is the input of ReduceLoadActivity.
	ClusterReduceLoad = ToCluster[ReduceLoadRequest]
	// ClusterRebalance is the input of RebalanceActivity.
	ClusterRebalance = ToCluster[RebalanceRequest]
	// ClusterRetire is the input of RetireActivity.
	ClusterRetire = ToCluster[RetireRequest]
)

// OpenLaneRequest asks hubs to poll the lane of tasks with these needs from now on.
type OpenLaneRequest struct {
	api.LaneNeeds
	// Tenant has the task that needs it; empty: none.
	Tenant string `json:"tenant,omitempty"`
}

// UsedLanesInput asks which lanes of capabilities a cluster's tasks use, or have used since a time.
type UsedLanesInput struct {
	Cluster string    `json:"cluster"`
	Lanes   []string  `json:"lanes"`
	Since   time.Time `json:"since"`
}

// AgentLanes are the open lanes of a cluster's agents at one version.
type AgentLanes struct {
	CreatedAt time.Time          `json:"created_at"` // of the cluster
	Version   int64              `json:"version"`
	Open      []cluster.OpenLane `json:"open,omitempty"`
}

// DirectiveVersion is the version of a cluster's directive.
type DirectiveVersion struct {
	CreatedAt time.Time `json:"created_at,omitzero"` // of the cluster
	Version   int64     `json:"version"`
}

// Directive says to hubs how to serve a cluster's lanes. A hub keeps the newest.
type Directive struct {
	Cluster string `json:"cluster"`
	// CreatedAt distinguishes a cluster from an earlier one of its name; versions count from its creation.
	CreatedAt time.Time           `json:"created_at,omitzero"`
	Version   int64               `json:"version"`
	Mode      api.ReplicationMode `json:"mode"`
	// Selection is how the cluster picks who takes over.
	Selection api.SelectionStrategy `json:"selection,omitempty"`
	// Tenants are those whose work begins here; none: all.
	Tenants        []string   `json:"tenants,omitempty"`
	CapabilitySets [][]string `json:"capability_sets,omitempty"`
	// AgentLanes is the version of AgentLanes that a hub must know at least.
	AgentLanes int64 `json:"agent_lanes,omitempty"`
	// Fits are the lanes of tasks that ask for resources, and those of types.
	Fits []task.Fit `json:"fits,omitempty"`
	// ServingTypes are what an agent of an active_active cluster must handle to serve the default lane.
	ServingTypes cluster.TypeSet `json:"serving_types,omitzero"`
	// Leader serves alone in an active_passive cluster, under LeaderEpoch.
	Leader      string `json:"leader,omitempty"`
	LeaderEpoch int64  `json:"leader_epoch,omitempty"`
	// Standbys of an active_passive cluster.
	Standbys []string `json:"standbys,omitempty"`
	// Shards says who serves each shard of a sharded cluster.
	Shards []cluster.ShardOwner `json:"shards,omitempty"`
	// Cordoned agents are given no work, sorted.
	Cordoned []string `json:"cordoned,omitempty"`
	// Targets are the deployment targets; who has one follows from the roles but in an active_active cluster.
	Targets []cluster.Target `json:"targets,omitempty"`
	// Slots are how many tasks agents with reduced load may run at a time.
	Slots map[string]int `json:"slots,omitempty"`
	// RoleLease is how long a role holder may go on without a renewal.
	RoleLease api.Duration `json:"role_lease,omitempty"`
	// ElectionInterval is the longest between two looks at a role holder.
	ElectionInterval api.Duration `json:"election_interval,omitempty"`
	// Brake decides how many lost agents at once point to the network, so that their work is held back.
	Brake api.BrakePolicy `json:"brake,omitzero"`
	// JudgesLosses: the cluster's brake judges over all hubs, so a hub reports whom it misses before it gives them up.
	JudgesLosses bool `json:"judges_losses,omitempty"`
	// Braked says that this brake is engaged.
	Braked bool `json:"braked,omitempty"`
	// Fences are the newest takeovers of agent ids, sorted by agent: older sessions must end.
	Fences []Fence `json:"fences,omitempty"`
	// Deaths are the newest proofs of death: these sessions end, and nothing waits for their leases.
	Deaths cluster.Deaths `json:"deaths,omitempty"`
	// EndedTokens are the join tokens whose agents' sessions must end, sorted.
	EndedTokens []string `json:"ended_tokens,omitempty"`
	// Paused says that nothing is taken from any lane, also not from those of the cluster's agents.
	Paused bool `json:"paused,omitempty"`
	// PausedLanes are the lanes that were paused one by one.
	PausedLanes []string `json:"paused_lanes,omitempty"`
}

// Holds reports whether a lane is paused.
func (d *Directive) Holds(lane string) bool { return d.Paused || slices.Contains(d.PausedLanes, lane) }

// Fenced reports whether a session of an agent has been replaced by a newer process's.
func (d *Directive) Fenced(agentID string, epoch int64) bool {
	i, found := slices.BinarySearchFunc(d.Fences, agentID,
		func(f Fence, id string) int { return strings.Compare(f.AgentID, id) })
	return found && epoch < d.Fences[i].MinEpoch
}

// Ended reports whether sessions that were opened with a join token must end.
func (d *Directive) Ended(token string) bool {
	_, found := slices.BinarySearch(d.EndedTokens, token)
	return found
}

// Replaces reports whether d is newer than another directive for the same cluster.
func (d *Directive) Replaces(known *Directive) bool {
	if !d.CreatedAt.Equal(known.CreatedAt) {
		return d.CreatedAt.After(known.CreatedAt)
	}
	return d.Version > known.Version
}

// Is reports whether d has a version.
func (d *Directive) Is(v DirectiveVersion) bool {
	return d.Version == v.Version && d.CreatedAt.Equal(v.CreatedAt)
}

// Fence says that sessions of an agent with an epoch below MinEpoch must end.
type Fence struct {
	AgentID  string `json:"agent_id"`
	MinEpoch int64  `json:"min_epoch"`
}

// ReleaseBrakeRequest is a person's word that the lost agents are really gone.
type ReleaseBrakeRequest struct {
	Cluster string `json:"cluster"`
	Reason  string `json:"reason,omitempty"`
}

// ConfigureRequest replaces a cluster's configuration.
type ConfigureRequest struct {
	api.ClusterConfig
	// IfRevisions are the revisions that the present configuration may have, else the request is Outdated; empty: any.
	IfRevisions []string `json:"if_revisions,omitempty"`
}

// ForgetRequest removes a member that is gone for good.
type ForgetRequest struct {
	AgentID string `json:"agent_id"`
}

// DeleteRequest ends a cluster.
type DeleteRequest struct {
	// Force removes the members that are still online too.
	Force bool `json:"force,omitempty"`
	// IfRevisions are as in ConfigureRequest.
	IfRevisions []string `json:"if_revisions,omitempty"`
}

// MembersChanged reports a batch of transitions that one hub saw.
type MembersChanged struct {
	Hub     string               `json:"hub"`
	Changes []cluster.Transition `json:"changes"`
	// Brake is how the hub's mass-loss brake of this cluster stands; nil: it is not engaged.
	Brake *cluster.BrakeHold `json:"brake,omitempty"`
}

// Missing are all agents of a cluster whose connection to a hub is closed, or that are silent there.
type Missing struct {
	Hub    string   `json:"hub"`
	Agents []string `json:"agents"`
	Idle   []string `json:"idle,omitempty"` // the ones that never had work
}

// PauseRequest pauses or resumes a lane, or the whole cluster if it names none.
type PauseRequest struct {
	Lane   string `json:"lane,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// RevokeJoinTokenRequest keeps out agents that come with a join token. EndSessions also ends the sessions of agents
// that joined with it.
type RevokeJoinTokenRequest struct {
	ID          string `json:"id"`
	EndSessions bool   `json:"end_sessions,omitempty"`
}

// RevokedJoinToken names the agents whose sessions end.
type RevokedJoinToken struct {
	Agents []string `json:"agents,omitempty"`
}

// HubLost says that a hub's lease ran out and that it did not answer within the grace.
type HubLost struct {
	Hub string    `json:"hub"`
	At  time.Time `json:"at"`
	// Held: the brake of this Cluster had held the hub's agents, and lets them go.
	Held    bool   `json:"held,omitempty"`
	Cluster string `json:"cluster,omitempty"`
	// Attempts are the attempts that the cluster's agents had there, by agent, as far as known.
	Attempts map[string][]cluster.HeldAttempt `json:"attempts,omitempty"`
}

// ClusterView is the durable view of a cluster. Live facts (load, last heartbeat) are in the worker registry.
type ClusterView struct {
	cluster.Cluster
	CreatedAt time.Time `json:"created_at"`
}

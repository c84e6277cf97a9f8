package workflows

import (
	"slices"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/statesync"
	"mainstay.dev/sdk/api"
)

const (
	// syncRounds bounds the rounds of reading, comparing and sending: the leader may write meanwhile.
	syncRounds = 4
	// syncCall bounds one hub's part of a round.
	syncCall = 20 * time.Second
	// syncBytes is the length of the history from which nothing more is sent: the next sync sends the rest. Temporal
	// terminates a workflow whose history has 50 MiB, and one part goes to each hub.
	syncBytes = 16 << 20
	// syncTurn bounds the inputs of activities that begin in one workflow task: Temporal takes 4 MiB of its answer.
	syncTurn = 2 << 20
)

// hubSilent is the reason for an unknown state of a member.
const hubSilent = "its hub did not answer"

// StateSync makes the states of a cluster's members equal. The common state has the newest entry that any member has of
// each key. Members get the entries that they lack, in parts, and the digests are compared again. Values pass through
// history only for these entries.
func StateSync(ctx workflow.Context, in contract.SyncInput) (api.SyncReport, error) {
	s := &stateSync{in: in, report: api.SyncReport{
		Cluster:   in.Cluster,
		Status:    api.SyncRunning,
		Reason:    in.Reason,
		StartedAt: workflow.Now(ctx),
		Members:   []api.MemberSync{},
	}}
	if err := contract.SyncQuery.Handle(ctx, func() api.SyncReport { return s.report }); err != nil {
		return s.report, err
	}
	s.report.Status, s.report.Why = s.run(ctx)
	completed := workflow.Now(ctx)
	s.report.CompletedAt = &completed
	return s.report, nil
}

// stateSync is one run of a StateSync workflow.
type stateSync struct {
	in      contract.SyncInput
	report  api.SyncReport
	members contract.SyncMembersResult
	hubs    []string
	want    []statesync.HeldLine
	// cut: there are more lines than want has.
	cut bool
}

func (s *stateSync) run(ctx workflow.Context) (api.SyncStatus, string) {
	for s.report.Rounds = 1; ; s.report.Rounds++ {
		if err := s.read(ctx); err != nil {
			return api.SyncFailed, ReasonOf(err)
		}
		if !s.kept() && s.deaf() {
			return api.SyncFailed, "no hub answered"
		}
		if !s.kept() {
			return api.SyncSkipped, "no agent of the cluster keeps state"
		}
		var lacks lacks
		if !full(ctx) {
			lacks = s.compare(ctx)
		}
		settled := s.settled()
		// Only the first round sends the agents' running tasks: they change by the second.
		if settled && (s.report.Rounds > 1 || len(lacks) == 0) {
			return api.SyncConsistent, ""
		}
		if s.report.Rounds > syncRounds {
			return api.SyncInconsistent, "after several rounds some members still differ; it is tried again"
		}
		if lacks == nil || full(ctx) {
			return api.SyncInconsistent, "there is more than one sync sends; the next one goes on"
		}
		if s.cut && !settled && len(lacks) == 0 {
			return api.SyncInconsistent, "its members have more entries together than a sync compares"
		}
		if !s.move(ctx, lacks) && !settled {
			return api.SyncInconsistent, "some members did not take or give what was asked; it is tried again"
		}
	}
}

// read reads the members and their states, and merges the common state.
func (s *stateSync) read(ctx workflow.Context) error {
	var err error
	if s.members, err = contract.SyncMembersActivity.Execute(onWorker(ctx, "list the members"),
		s.in.Cluster).Get(ctx); err != nil {
		return err
	}
	s.hubs = nil
	s.report.Members = make([]api.MemberSync, len(s.members.Members))
	for i, m := range s.members.Members {
		s.report.Members[i] = api.MemberSync{AgentID: m.AgentID, Role: m.Role, Hub: m.Hub, Why: "it is not connected"}
		if m.Hub != "" {
			s.report.Members[i].Why = hubSilent
			if !slices.Contains(s.hubs, m.Hub) {
				s.hubs = append(s.hubs, m.Hub)
			}
		}
	}
	slices.Sort(s.hubs)
	results := onHubs(ctx, s.hubs, contract.ReadStatesActivity, "read states at hub ",
		func(string) contract.ReadStatesInput {
			return contract.ReadStatesInput{Cluster: s.in.Cluster, Manifests: true, First: s.members.Leader}
		})
	merged := statesync.NewMerged(s.members.Leader)
	for i, hub := range s.hubs {
		result := results[i]
		if result == nil {
			continue
		}
		for _, line := range result.Merged {
			merged.Take(line)
		}
		for _, agent := range result.Agents {
			s.note(hub, agent)
		}
	}
	s.want = merged.Lines(func(agent string) bool { return s.member(agent) != nil })
	s.report.State = api.SummaryOf(statesync.LinesOf(s.want))
	bounded := statesync.BoundHeld(s.want, s.members.Leader)
	s.want, s.cut = bounded, len(bounded) < len(s.want)
	return nil
}

func (s *stateSync) member(agent string) *api.MemberSync {
	for i := range s.report.Members {
		if m := &s.report.Members[i]; m.AgentID == agent {
			return m
		}
	}
	return nil
}

// note records a hub's answer about one agent.
func (s *stateSync) note(hub string, agent contract.AgentState) {
	m := s.member(agent.AgentID)
	switch {
	case m == nil || m.Hub != hub:
	case agent.State == nil:
		m.Why = "it keeps no state"
	case agent.Silent:
		m.State, m.Why = agent.State, "it did not answer"
	default:
		m.State, m.Why = agent.State, ""
	}
}

// kept reports whether any member keeps state.
func (s *stateSync) kept() bool {
	return slices.ContainsFunc(s.report.Members, func(m api.MemberSync) bool { return m.State != nil })
}

// deaf reports whether a hub did not answer.
func (s *stateSync) deaf() bool {
	return slices.ContainsFunc(s.report.Members, func(m api.MemberSync) bool { return m.Why == hubSilent })
}

// settled marks the members that have the common state, and reports whether all that keep state do.
func (s *stateSync) settled() bool {
	all := true
	for i := range s.report.Members {
		m := &s.report.Members[i]
		m.Consistent = m.State != nil && m.Why == "" && m.State.Digest == s.report.State.Digest
		all = all && (m.Consistent || m.State == nil)
	}
	return all
}

// lacks has, by hub, what the hub's agents lack.
type lacks map[string]*contract.CompareStatesResult

func (s *stateSync) compare(ctx workflow.Context) lacks {
	found := lacks{}
	want := statesync.LinesOf(s.want)
	results := onHubs(ctx, s.hubs, contract.CompareStatesActivity, "compare states at hub ",
		func(string) contract.CompareStatesInput {
			return contract.CompareStatesInput{Cluster: s.in.Cluster, Want: want}
		})
	for i, result := range results {
		if result == nil {
			continue
		}
		for _, lag := range result.Lagging {
			if m := s.member(lag.AgentID); m != nil {
				m.Behind = lag.Behind
			}
		}
		if s.cut {
			result.Extra = nil // it may be among what was cut
		}
		if len(result.Missing)+len(result.Extra) > 0 {
			found[s.hubs[i]] = result
		}
	}
	return found
}

// move copies entries to the members that lack them. It reports whether anything changed.
func (s *stateSync) move(ctx workflow.Context, l lacks) bool {
	var missing []api.StateRef
	for _, hub := range s.hubs {
		if result := l[hub]; result != nil {
			missing = append(missing, result.Missing...)
		}
	}
	moved := s.forget(ctx, l)
	for _, part := range statesync.ChunkState(s.want, missing) {
		if full(ctx) {
			break
		}
		entries, ok := s.fetch(ctx, part)
		if !ok {
			continue
		}
		moved = s.apply(ctx, l, entries, part.Refs) || moved
	}
	return moved
}

// full reports whether the history is too long for another part.
func full(ctx workflow.Context) bool {
	return workflow.GetInfo(ctx).GetCurrentHistorySize() > syncBytes
}

// fetch reads a part of the entries from members that have them.
func (s *stateSync) fetch(ctx workflow.Context, part statesync.StatePart) ([]api.StateEntry, bool) {
	holder := s.member(part.Holder)
	if holder == nil || holder.Hub == "" {
		return nil, false
	}
	read, err := contract.ReadEntriesActivity.Execute(syncAtHub(ctx, holder.Hub, "read entries from "+part.Holder),
		contract.ReadEntriesInput{AgentID: part.Holder, Refs: part.Refs}).Get(ctx)
	if err != nil || read.Silent {
		holder.Why = "it did not give its entries"
		return nil, false
	}
	return read.Entries, len(read.Entries) > 0
}

// apply hands entries to agents that lack some of them.
func (s *stateSync) apply(ctx workflow.Context, l lacks, entries []api.StateEntry, refs []api.StateRef) bool {
	var hubs []string
	for _, hub := range s.hubs {
		if r := l[hub]; r != nil && slices.ContainsFunc(refs,
			func(ref api.StateRef) bool { return slices.Contains(r.Missing, ref) }) {
			hubs = append(hubs, hub)
		}
	}
	agents := s.hand(ctx, hubs, func(hub string) contract.ApplyStateInput {
		return contract.ApplyStateInput{Cluster: s.in.Cluster, Agents: laggards(l[hub]), Entries: entries}
	})
	s.report.EntriesSent += agents * len(entries)
	for i := range entries {
		s.report.BytesSent += agents * len(entries[i].Value)
	}
	return agents > 0
}

// forget makes agents drop the entries of former members.
func (s *stateSync) forget(ctx workflow.Context, l lacks) bool {
	var hubs []string
	for _, hub := range s.hubs {
		if r := l[hub]; r != nil && len(r.Extra) > 0 {
			hubs = append(hubs, hub)
		}
	}
	return s.hand(ctx, hubs, func(hub string) contract.ApplyStateInput {
		return contract.ApplyStateInput{Cluster: s.in.Cluster, Agents: laggards(l[hub]), Forget: l[hub].Extra}
	}) > 0
}

// hand hands something to the agents of some hubs, and counts the agents that took it.
func (s *stateSync) hand(ctx workflow.Context, hubs []string, what func(hub string) contract.ApplyStateInput) int {
	took := 0
	results := onHubs(ctx, hubs, contract.ApplyStateActivity, "send entries at hub ", what)
	for i, result := range results {
		if result == nil {
			continue
		}
		took += len(what(hubs[i]).Agents) - len(result.Failed)
		for _, f := range result.Failed {
			if m := s.member(f.AgentID); m != nil {
				m.Why = f.Why
			}
		}
	}
	return took
}

func laggards(r *contract.CompareStatesResult) []string {
	var agents []string
	for _, lag := range r.Lagging {
		agents = append(agents, lag.AgentID)
	}
	return agents
}

// onHubs runs an activity on several hubs at about the same time; nil is the result of one that failed.
func onHubs[In, Out any](
	ctx workflow.Context, hubs []string, activity contract.Activity[In, Out], summary string, input func(hub string) In,
) []*Out {
	futures := make([]contract.Future[Out], len(hubs))
	turn := 0
	for i, hub := range hubs {
		in := input(hub)
		bytes := contract.Bytes(in)
		if turn += bytes; turn > syncTurn && i > 0 {
			_ = workflow.Sleep(ctx, time.Millisecond) // the next workflow task
			turn = bytes
		}
		futures[i] = activity.Execute(syncAtHub(ctx, hub, summary+hub), in)
	}
	results := make([]*Out, len(hubs))
	for i, hub := range hubs {
		result, err := futures[i].Get(ctx)
		if err != nil {
			workflow.GetLogger(ctx).Info("A hub did not do its part of a state sync", "hub", hub, "error", err)
			continue
		}
		results[i] = &result
	}
	return results
}

func syncAtHub(ctx workflow.Context, hub, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue: contract.HubQueue(hub), ScheduleToStartTimeout: directTimeout, StartToCloseTimeout: syncCall,
		RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1}, Summary: summary,
	})
}

// syncBound bounds one state sync.
const syncBound = 5 * time.Minute

// StartSync starts a state sync that outlives its parent.
func StartSync(ctx workflow.Context, in contract.SyncInput) workflow.ChildWorkflowFuture {
	ctx = workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{
		WorkflowID:               contract.SyncWorkflowID(in.Cluster),
		WorkflowIDReusePolicy:    enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		WorkflowExecutionTimeout: syncBound,
		ParentClosePolicy:        enumspb.PARENT_CLOSE_POLICY_ABANDON,
		TypedSearchAttributes:    temporal.NewSearchAttributes(contract.AttrCluster.ValueSet(in.Cluster)),
		StaticSummary:            "state sync: " + in.Reason,
	})
	return workflow.ExecuteChildWorkflow(ctx, contract.StateSyncWorkflow, in)
}

// syncAfter starts a state sync after a promotion, and keeps its outcome in the failover's record.
func syncAfter(ctx workflow.Context, in contract.FailoverInput, record *api.FailoverRecord) {
	if !in.StateKept || record.Promoted == "" {
		return
	}
	child := StartSync(ctx, contract.SyncInput{Cluster: in.Cluster, Reason: record.Promoted + " was promoted"})
	var report api.SyncReport
	if err := child.Get(ctx, &report); err != nil {
		workflow.GetLogger(ctx).Info("No state sync of this failover's own; one is under way", "error", err)
		return
	}
	record.StateSync = report.Status
}

package workflows

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/scaling"
	"mainstay.dev/sdk/api"
)

const (
	// spawnerAnswer is how long a spawner has to accept a request.
	spawnerAnswer = 10 * time.Second
	// spawnerTurn is how long a known spawner may take to begin, as during a restart.
	spawnerTurn = 30 * time.Second
	// spawnerBeat bounds the silence of a spawner at work; after it the spawner counts as gone.
	spawnerBeat = 15 * time.Second
	// spawnLimit bounds starting one agent.
	spawnLimit = 2 * time.Minute
	// terminateLimit bounds stopping one agent; the spawner uses force well before.
	terminateLimit = 3 * time.Minute
	// retireLimit bounds waiting until a stopped agent has left its cluster.
	retireLimit = time.Minute
)

// Scaling starts or stops agents of a cluster, records the outcome, and reports it to the cluster. It stops a started
// agent that does not come online in time. It drains agents before it stops them.
func Scaling(ctx workflow.Context, in contract.ScalingInput) (api.ScalingRecord, error) {
	s := &scalingFlow{in: in, record: api.ScalingRecord{
		ID:        contract.ScalingID(in.Cluster, in.Number),
		Cluster:   in.Cluster,
		Change:    in.Decision.Change,
		Rule:      in.Decision.Rule,
		Reason:    in.Decision.Reason,
		Status:    api.ScalingRunning,
		From:      in.Decision.Current,
		To:        in.Decision.Current + len(in.Starts) - len(in.Stops),
		StartedAt: workflow.Now(ctx), Agents: []api.ScaledAgent{},
	}}
	if in.Decision.Rule == api.RuleRetire || in.Decision.Rule == api.RuleRestart {
		s.record.To = s.record.From // they no longer counted, or come back
	}
	for _, id := range in.Starts {
		s.record.Agents = append(s.record.Agents, api.ScaledAgent{AgentID: id, Status: api.ScaledWaiting})
	}
	for _, stop := range in.Stops {
		s.record.Agents = append(s.record.Agents, api.ScaledAgent{AgentID: stop.AgentID, Spawner: stop.Spawner,
			Status: api.ScaledWaiting})
	}
	if err := contract.ScalingQuery.Handle(ctx, func() api.ScalingRecord { return s.record }); err != nil {
		return s.record, err
	}
	s.announce(ctx)
	switch {
	case in.Decision.Rule == api.RuleRestart:
		s.restartAgents(ctx)
	case len(in.Stops) > 0:
		s.stopAgents(ctx)
	default:
		s.startAgents(ctx)
	}
	completed := workflow.Now(ctx)
	s.record.CompletedAt = &completed
	scaling.SettleScaling(&s.record)
	own, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	s.tellCluster(own)
	s.announce(ctx)
	return s.record, nil
}

// announce publishes the action's beginning or end as an event of the cluster.
func (s *scalingFlow) announce(ctx workflow.Context) {
	reason := s.record.Reason
	if s.record.Error != "" {
		reason += ": " + s.record.Error
	}
	announce(ctx, s.in.Cluster, cluster.Event{Type: api.EventScaling, EventData: api.EventData{
		ID: s.record.ID, Count: s.record.To, Outcome: string(s.record.Status), Reason: reason}})
}

// scalingFlow is one run of a Scaling workflow.
type scalingFlow struct {
	in     contract.ScalingInput
	record api.ScalingRecord
}

// tellCluster reports the outcome to the cluster. Without that, the cluster gives the action up in time.
func (s *scalingFlow) tellCluster(ctx workflow.Context) {
	result := scaling.ScalingResult{Number: s.in.Number}
	if s.record.Status != api.ScalingSucceeded {
		result.Failed = s.record.Error
	}
	if err := contract.ScaledSignal.SendFrom(ctx, contract.ClusterWorkflowID(s.in.Cluster), "", result).Get(ctx,
		nil); err != nil {
		workflow.GetLogger(ctx).Warn("The cluster was not told how a scaling action ended", "error", err)
	}
}

// startAgents starts all at one spawner and waits until they are online.
func (s *scalingFlow) startAgents(ctx workflow.Context) {
	spawner, why := s.findSpawner(ctx)
	if why != "" {
		s.record.Error = why
		for i := range s.record.Agents {
			s.end(ctx, &s.record.Agents[i], api.ScaledFailed, s.record.Error)
		}
		return
	}
	s.record.Spawner, s.record.Platform = spawner.Name, spawner.Platform
	s.each(ctx, func(ctx workflow.Context, a *api.ScaledAgent) {
		a.Spawner = s.record.Spawner
		s.start(ctx, a)
	})
	s.endStarts(ctx)
}

// endStarts waits until the started agents are online, and gives up those that are not in time.
func (s *scalingFlow) endStarts(ctx workflow.Context) {
	s.awaitOnline(ctx)
	s.each(ctx, func(ctx workflow.Context, a *api.ScaledAgent) {
		if a.Status == api.ScaledStarted {
			s.giveUp(ctx, a, "it did not come online within "+s.in.Spawn.JoinTimeout.String()+" of its start")
		}
	})
}

// restartAgents ends agents that have no work, and starts them anew under their ids, each at its own spawner. One that
// does not come back is forgotten, so that another takes its place.
func (s *scalingFlow) restartAgents(ctx workflow.Context) {
	ended := map[string]bool{}
	s.each(ctx, func(ctx workflow.Context, a *api.ScaledAgent) {
		if err := s.terminate(ctx, a, true); err != nil {
			s.end(ctx, a, api.ScaledFailed, "its process was not stopped: "+spawnerFailed(a.Spawner, err))
			return
		}
		ended[a.AgentID] = true
		s.start(ctx, a)
	})
	s.endStarts(ctx)
	s.each(ctx, func(ctx workflow.Context, a *api.ScaledAgent) {
		if why := a.Error; a.Status == api.ScaledFailed && ended[a.AgentID] {
			if s.stop(ctx, a); a.Status == api.ScaledStopped {
				s.end(ctx, a, api.ScaledFailed, why+"; it was stopped for good")
			}
		}
	})
}

// findSpawner returns the named spawner, or one of the first platform that has one; else why there is none.
func (s *scalingFlow) findSpawner(ctx workflow.Context) (spawner contract.SpawnerInfo, why string) {
	name, platforms := s.in.Spawn.Spawner, s.in.Spawn.Platforms()
	find := func(queue string) (contract.SpawnerInfo, error) {
		return contract.FindSpawnerActivity.Execute(atSpawner(ctx, queue, spawnerAnswer, "find a spawner"),
			contract.None{}).Get(ctx)
	}
	if name != "" {
		info, err := find(contract.SpawnerQueue(name))
		switch {
		case err != nil:
			return info, spawnerFailed(name, err)
		case len(platforms) > 0 && !slices.Contains(platforms, info.Platform):
			return info, fmt.Sprintf("spawner %s serves platform %s, and scaling.spawn.platform is %s", name, info.Platform,
				platforms[0])
		}
		return info, info.Refuses()
	}
	var whys []string
	for _, platform := range platforms {
		info, err := find(contract.SpawnersQueue(platform))
		if err == nil {
			return info, ""
		}
		whys = append(whys, noSpawner(platform, err))
	}
	return spawner, strings.Join(whys, "; ")
}

// start starts one agent. The outcome of a failed start is unknown, so start undoes it.
func (s *scalingFlow) start(ctx workflow.Context, a *api.ScaledAgent) {
	spawned, err := contract.SpawnAgentActivity.Execute(atSpawner(ctx, contract.SpawnerQueue(a.Spawner),
		spawnLimit, "start "+a.AgentID), cluster.SpawnSpec{
		ID:           a.AgentID,
		Cluster:      s.in.Cluster,
		Slots:        s.in.Spawn.Slots,
		Capabilities: s.in.Spawn.Capabilities,
		Resources:    s.in.Spawn.Resources,
		Environment:  s.in.Spawn.Environment,
		Image:        s.in.Spawn.Image,
		Docker:       s.in.Spawn.Docker,
		Kubernetes:   s.in.Spawn.Kubernetes,
		EC2:          s.in.Spawn.EC2,
	}).Get(ctx)
	if err != nil {
		s.giveUp(ctx, a, "it could not be started: "+ReasonOf(err))
		return
	}
	a.Status, a.Handle, a.Host, a.StartedAt = api.ScaledStarted, spawned.Handle, spawned.Host, &spawned.StartedAt
}

// awaitOnline waits until all started agents are online or the time is over.
func (s *scalingFlow) awaitOnline(ctx workflow.Context) {
	var started []string
	for i := range s.record.Agents {
		if s.record.Agents[i].Status == api.ScaledStarted {
			started = append(started, s.record.Agents[i].AgentID)
		}
	}
	if len(started) == 0 {
		return
	}
	watchCtx := workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue: contract.WorkerQueue, ScheduleToCloseTimeout: s.in.Spawn.JoinTimeout.Std() + time.Minute,
		HeartbeatTimeout: 15 * time.Second, Summary: "until the agents are online",
	})
	result, err := contract.AwaitJoinedActivity.Execute(watchCtx,
		contract.AwaitJoinedInput{Cluster: s.in.Cluster, Agents: started, Timeout: s.in.Spawn.JoinTimeout}).Get(ctx)
	if err != nil {
		workflow.GetLogger(ctx).Warn("It is not known which agents have come online", "error", err)
	}
	for i := range s.record.Agents {
		a := &s.record.Agents[i]
		if at, joined := result.Joined[a.AgentID]; joined && a.Status == api.ScaledStarted {
			a.Status, a.CompletedAt = api.ScaledOnline, &at
		}
	}
}

// giveUp stops a started agent at once.
func (s *scalingFlow) giveUp(ctx workflow.Context, a *api.ScaledAgent, why string) {
	own, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	if err := s.terminate(own, a, false); err != nil {
		why += "; and whether it still runs is not known: " + ReasonOf(err)
	}
	s.end(own, a, api.ScaledFailed, why)
}

func (s *scalingFlow) terminate(ctx workflow.Context, a *api.ScaledAgent, graceful bool) error {
	_, err := contract.TerminateAgentActivity.Execute(atSpawner(ctx, contract.SpawnerQueue(a.Spawner), terminateLimit,
		"stop "+a.AgentID), contract.TerminateInput{ID: a.AgentID, Cluster: s.in.Cluster, Graceful: graceful}).Get(ctx)
	return err
}

// stopAgents drains the agents, stops their processes, and makes the cluster forget them.
func (s *scalingFlow) stopAgents(ctx workflow.Context) {
	drained, err := s.drain(ctx)
	if err != nil {
		s.record.Error = "the agents were not drained: " + ReasonOf(err)
	}
	s.each(ctx, func(ctx workflow.Context, a *api.ScaledAgent) {
		for i := range drained.Agents {
			if d := &drained.Agents[i]; d.AgentID == a.AgentID && d.Status == api.DrainCompleted {
				s.stop(ctx, a)
				return
			} else if d.AgentID == a.AgentID {
				s.end(ctx, a, api.ScaledFailed, "its drain is "+string(d.Status)+": "+d.Error)
			}
		}
		if a.Status != api.ScaledFailed {
			s.end(ctx, a, api.ScaledFailed, "it was not drained")
		}
	})
}

func (s *scalingFlow) drain(ctx workflow.Context) (api.DrainRecord, error) {
	in := contract.DrainInput{ID: contract.DrainID(s.in.Cluster, scaling.ScalingDrainName(s.in.Number)),
		Cluster: s.in.Cluster,
		Reason:  "scaling: " + s.in.Decision.Reason, Timeout: s.in.Spawn.DrainTimeout, MaxParallel: len(s.in.Stops)}
	for i := range s.record.Agents {
		in.Agents = append(in.Agents, s.record.Agents[i].AgentID)
		s.record.Agents[i].Status = api.ScaledDraining
	}
	s.record.Drain = in.ID
	workflowID, _ := contract.DrainWorkflowID(in.ID)
	childCtx := workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{
		WorkflowID:            workflowID,
		ParentClosePolicy:     enumspb.PARENT_CLOSE_POLICY_REQUEST_CANCEL,
		WaitForCancellation:   true,
		TypedSearchAttributes: temporal.NewSearchAttributes(contract.AttrCluster.ValueSet(s.in.Cluster)),
		StaticSummary:         "drain agents that scaling stops",
	})
	var record api.DrainRecord
	err := workflow.ExecuteChildWorkflow(childCtx, contract.DrainWorkflow, in).Get(ctx, &record)
	return record, err
}

// stop ends a drained agent's process. The cluster forgets a lost agent even if its spawner does not answer; if the
// process still lives, it joins as a new agent.
func (s *scalingFlow) stop(ctx workflow.Context, a *api.ScaledAgent) {
	a.Status = api.ScaledDrained
	stopErr := s.terminate(ctx, a, true)
	retireCtx := workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:              contract.WorkerQueue,
		StartToCloseTimeout:    directTimeout,
		ScheduleToCloseTimeout: retireLimit,
		Summary:                "forget " + a.AgentID,
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: 200 * time.Millisecond, MaximumInterval: 5 * time.Second,
			MaximumAttempts: s.retireTries(stopErr)},
	})
	_, err := contract.RetireActivity.Execute(retireCtx, contract.ClusterRetire{Cluster: s.in.Cluster,
		Request: contract.RetireRequest{AgentID: a.AgentID}}).Get(ctx)
	switch {
	case err == nil:
		s.end(ctx, a, api.ScaledStopped, "")
	case stopErr != nil:
		s.end(ctx, a, api.ScaledFailed, "its process was not stopped: "+spawnerFailed(a.Spawner,
			stopErr)+"; it stays in maintenance, and the stop is tried again")
	default:
		s.end(ctx, a, api.ScaledFailed, "its process was stopped, but the cluster still has it: "+ReasonOf(err))
	}
}

// retireTries is one if the process was not stopped: the cluster can forget the agent only once it is gone.
func (s *scalingFlow) retireTries(stopErr error) int32 {
	if stopErr != nil {
		return 1
	}
	return 0 // no limit but the time
}

// each calls do concurrently for all agents.
func (s *scalingFlow) each(ctx workflow.Context, do func(ctx workflow.Context, a *api.ScaledAgent)) {
	wait := workflow.NewWaitGroup(ctx)
	for i := range s.record.Agents {
		wait.Add(1)
		workflow.GoNamed(ctx, s.record.Agents[i].AgentID, func(ctx workflow.Context) {
			defer wait.Done()
			do(ctx, &s.record.Agents[i])
		})
	}
	own, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	wait.Wait(own)
}

func (s *scalingFlow) end(ctx workflow.Context, a *api.ScaledAgent, status api.ScaledStatus, why string) {
	at := workflow.Now(ctx)
	a.Status, a.Error, a.CompletedAt = status, why, &at
}

// atSpawner returns the options of an activity of spawners.
func atSpawner(ctx workflow.Context, queue string, limit time.Duration, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:              queue,
		ScheduleToStartTimeout: min(limit, spawnerTurn),
		ScheduleToCloseTimeout: limit,
		HeartbeatTimeout:       spawnerBeat,
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, MaximumAttempts: 3,
			NonRetryableErrorTypes: []string{contract.SpawnRefused}},
		Summary: summary,
	})
}

// spawnerFailed explains a spawner's failure in words.
func spawnerFailed(name string, err error) string {
	var late *temporal.TimeoutError
	if !errors.As(err, &late) {
		return ReasonOf(err)
	}
	return "spawner " + name + " does not answer"
}

// noSpawner explains in words why no spawner of a platform took a request.
func noSpawner(platform api.Platform, err error) string {
	var late *temporal.TimeoutError
	if !errors.As(err, &late) {
		return ReasonOf(err)
	}
	return fmt.Sprintf("no spawner of platform %s is there to start agents; start one with mainstay serve --roles spawner",
		platform)
}

// sweepLimit bounds one look at all clusters; the next one waits for it.
const sweepLimit = 5 * time.Minute

// ScalingSweep looks once at all clusters that have scaling on. A Temporal Schedule starts it.
func ScalingSweep(ctx workflow.Context) (contract.SweepResult, error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue: contract.WorkerQueue, ScheduleToCloseTimeout: sweepLimit, HeartbeatTimeout: 30 * time.Second,
		RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 2}, Summary: "look at the clusters that have scaling on",
	})
	result, err := contract.SweepScalingActivity.Execute(ctx, contract.None{}).Get(ctx)
	return result, err
}

// Package scaling shows how the numbers of clusters' agents are kept, and lets people set them.
package scaling

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/parallel"
	"mainstay.dev/mainstay/internal/scaling"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// Handlers answer the requests.
type Handlers struct {
	*rest.Core
	// Configure changes a cluster's settings.
	Configure func(
		ctx context.Context, name string, expected []string,
		change func(api.ClusterConfig) (api.ClusterConfig, error),
	) (api.Cluster, error)
}

type listInput struct {
	Cluster rest.Slug `query:"cluster"`
	rest.RecordPageInput
}

// Register adds the operations.
func (h *Handlers) Register(routes rest.API) {
	r := rest.On(routes, "Scaling")
	rest.Serve(r, "get-scaling", "GET /clusters/{id}/scaling", "Show how a cluster's number of agents is kept", "",
		func(ctx context.Context, in *rest.ByID) (api.ScalingStatus, error) { return h.status(ctx, in.ID) }, rest.Held)
	rest.Serve(r, "scale-cluster", "POST /clusters/{id}/scaling", "Say how many agents a cluster is to have",
		"Agents are started or stopped at once. Who is stopped is drained before: agents without work first, and "+
			"only agents that a spawner started.",
		h.scale, rest.Held)
	rest.Serve(r, "spawn-agent", "POST /clusters/{id}/spawn", "Start one more agent of a cluster",
		"The cluster's spawner starts it; scaling keeps one more from then on. Answers 409 conflict where no "+
			"spawner is there, or the cluster has its max_agents.",
		h.spawn, rest.Held)
	rest.Serve(r, "terminate-agent", "POST /{id}/terminate", "Stop an agent that a spawner started",
		"It is drained before; scaling keeps one fewer from then on, but never fewer than min_agents. Answers 409 "+
			"conflict for an agent that no spawner started.",
		h.terminate, rest.Held)
	rest.Serve(r, "promote-rollout", "POST /clusters/{id}/scaling/rollout/promote",
		"Let all agents of a cluster follow its healthy canaries", "Only while the rollout is waiting.",
		h.decides("promote a rollout", contract.PromoteRolloutUpdate), rest.Held, rest.As(access.Administer))
	rest.Serve(r, "revert-rollout", "POST /clusters/{id}/scaling/rollout/revert",
		"Put the settings of agents before the newest rollout in force again",
		"Agents that have them stay, and the others are replaced, without canaries.",
		h.decides("revert a rollout", contract.RevertRolloutUpdate), rest.Held, rest.As(access.Administer))
	rest.List(r, "scalings", "list-scalings", "GET /scalings", "List what scaling has done",
		"Newest first. An action appears within about a second of its start.", h.list)
	rest.List(r, "spawners", "list-spawners", "GET /spawners", "List spawners",
		"Sorted by name: those that were there within the last minutes, and how they are now.", h.listSpawners)
	rest.Serve(r, "get-scaling-action", "GET /scalings/{id}", "Get one action of scaling",
		"Why it was begun, which agents it started or stopped, and how that went.", h.scalingRecord)
}

// newestActions is how many actions a status shows.
const newestActions = 5

// scale sets how many agents a cluster is to have, and answers how it stands then.
func (h *Handlers) scale(
	ctx context.Context, in *rest.To[api.ScaleRequest],
) (status api.ScalingStatus, err error) {
	r := &in.Body
	if r.Desired == nil && r.Min == nil && r.Max == nil {
		return status, rest.Invalid("body", errors.New("must name desired, min or max"))
	}
	_, err = h.Configure(ctx, in.ID, nil, func(c api.ClusterConfig) (api.ClusterConfig, error) {
		set(&c.DesiredAgents, r.Desired)
		set(&c.MinAgents, r.Min)
		set(&c.MaxAgents, r.Max)
		if r.Desired == nil && c.DesiredAgents != 0 { // the old number gives way to the new bounds
			c.DesiredAgents = min(max(c.DesiredAgents, c.MinAgents), c.MaxAgents)
		}
		if r.Desired != nil && !c.Scaling.On() {
			c.Scaling.Mode = api.ScalingManual
		}
		return c, nil
	})
	if err != nil {
		return status, err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*rest.CallTimeout)
	defer cancel()
	if r.Desired != nil { // the rules may have moved the number since it was last set
		request := contract.ScaleRequest{To: r.Desired}
		if _, err := rest.UpdateCluster(ctx, h.Core, "scale a cluster", contract.ScaleUpdate, in.ID,
			request); err != nil {
			return status, err
		}
	}
	return h.status(ctx, in.ID)
}

// spawn starts one more agent of a cluster.
func (h *Handlers) spawn(ctx context.Context, in *rest.To[*api.ReasonRequest]) (a api.ScalingAccepted, err error) {
	view, err := h.View(ctx, in.ID)
	if err != nil {
		return a, err
	}
	if spawn := scaling.SpawnBy(&view.Cluster, api.RuleByHand); len(h.spawnersSeen(ctx, spawn)) == 0 {
		return a, httpapi.Problem(protocol.CodeConflict,
			"no spawner is there that starts agents of this cluster: start one with `mainstay serve --roles "+
				"spawner`, or name another in scaling.spawn")
	}
	request := contract.RunRequest{By: rest.Actor(ctx), Reason: in.Body.Text()}
	asked, err := rest.UpdateCluster(ctx, h.Core, "start an agent", contract.SpawnUpdate, in.ID, request)
	return accepted(in.ID, asked), err
}

// terminate stops an agent that a spawner started.
func (h *Handlers) terminate(
	ctx context.Context, in *rest.To[*api.ReasonRequest],
) (a api.ScalingAccepted, err error) {
	view, _, err := h.ClusterOfAgent(ctx, in.ID)
	if err != nil {
		return a, err
	}
	request := contract.TerminateRequest{AgentID: in.ID,
		RunRequest: contract.RunRequest{By: rest.Actor(ctx), Reason: in.Body.Text()}}
	name := view.Config.Name
	asked, err := rest.UpdateCluster(ctx, h.Core, "stop an agent", contract.TerminateUpdate, name, request)
	return accepted(name, asked), err
}

func accepted(cluster string, asked contract.ScalingAsked) api.ScalingAccepted {
	return api.ScalingAccepted{ScalingID: contract.ScalingID(cluster, asked.Number), AgentID: asked.AgentID}
}

// decides makes the handler that promotes or reverts a cluster's rollout, and answers how its scaling stands then.
func (h *Handlers) decides(
	doing string, u contract.Update[contract.RunRequest, contract.None],
) func(context.Context, *rest.To[*api.ReasonRequest]) (api.ScalingStatus, error) {
	return func(ctx context.Context, in *rest.To[*api.ReasonRequest]) (api.ScalingStatus, error) {
		ctx, cancel := context.WithTimeout(ctx, 2*rest.CallTimeout)
		defer cancel()
		request := contract.RunRequest{By: rest.Actor(ctx), Reason: in.Body.Text()}
		if _, err := rest.UpdateCluster(ctx, h.Core, doing, u, in.ID, request); err != nil {
			return api.ScalingStatus{}, err
		}
		h.ForgetCluster(in.ID)
		return h.status(ctx, in.ID)
	}
}

// status reports how scaling keeps a cluster's number of agents, and decides anew what to do, without doing it.
func (h *Handlers) status(ctx context.Context, name string) (api.ScalingStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*rest.CallTimeout)
	defer cancel()
	view, err := h.View(ctx, name)
	if err != nil {
		return api.ScalingStatus{}, err
	}
	config, now := &view.Config, time.Now()
	s := api.ScalingStatus{
		Cluster:  name,
		Mode:     config.Scaling.Mode,
		Min:      config.MinAgents,
		Desired:  config.DesiredAgents,
		Max:      config.MaxAgents,
		Target:   view.Wanted(),
		Settings: config.Scaling.WithDefaults(),
		Spawners: []api.SpawnerSeen{},
		Actions:  []api.ScalingRecord{},
	}
	for i := range view.Members {
		if _, spawned := view.Members[i].SpawnedBy(); spawned && view.Members[i].Serving() {
			s.Spawned++
		}
	}
	s.Current = scaling.DecideScaling(&view.Cluster, nil, now).Current
	if state := view.Scaling; state != nil {
		s.LastUp, s.LastDown = rest.Known(state.LastUp), rest.Known(state.LastDown)
		s.Blocked, s.Stuck, s.Rollout = evaluation(state.Blocked), evaluation(state.Stuck), state.Rollout
		if state.Last != nil {
			s.Last = scalingDecision(*state.Last)
		}
	}
	newest := &listInput{Cluster: rest.Slug(name), RecordPageInput: rest.RecordPageInput{PageSize: newestActions}}
	if actions, err := h.list(ctx, newest); err == nil {
		s.Actions = append(s.Actions, actions.Items...)
	}
	if config.Scaling.On() {
		h.judgeScaling(ctx, &view.Cluster, &s, now)
		s.NextCheck, s.Paused = h.nextSweep(ctx)
		s.Spawners = h.spawnersSeen(ctx, &config.Scaling.Spawn)
	}
	return s, nil
}

// judgeScaling decides with what can be read now; what cannot be read is left out.
func (h *Handlers) judgeScaling(ctx context.Context, c *cluster.Cluster, s *api.ScalingStatus, now time.Time) {
	facts := scaling.ScalingFacts{Agents: h.Live(ctx).Activities(c)}
	decision, err := h.Store.Clusters().CompleteScaling(ctx, c, &facts,
		func() cluster.ScalingDecision { return scaling.DecideScaling(c, &facts, now) })
	if err != nil {
		h.Logger.Debug("what scaling would do is not known", zap.Error(err))
		return
	}
	s.Queue, s.Decision = &facts.Queue, scalingDecision(decision)
}

func scalingDecision(d cluster.ScalingDecision) *api.ScalingDecision {
	return &api.ScalingDecision{At: d.At.UTC(), Change: d.Change, Count: d.Count, Agents: d.Agents, Rule: d.Rule,
		Reason: d.Reason, Blocked: d.Blocked, NextAt: rest.Known(d.NextAt)}
}

func evaluation(b *api.ScalingBlocked) *api.Evaluation {
	if b == nil {
		return nil
	}
	return &api.Evaluation{Reason: b.Reason, Since: b.Since.UTC(), Failures: b.Failures, NextAt: b.NextAt.UTC()}
}

// nextSweep is when the schedule looks at the clusters next; nil when that is not known.
func (h *Handlers) nextSweep(ctx context.Context) (next *time.Time, paused bool) {
	d, err := h.Store.DescribeSchedule(ctx, contract.ScalingScheduleID)
	if err != nil {
		h.Logger.Debug("the schedule of scaling was not found", zap.Error(err))
		return nil, false
	}
	if d.GetSchedule().GetState().GetPaused() {
		return nil, true
	}
	if times := d.GetInfo().GetFutureActionTimes(); len(times) > 0 {
		next = store.TimeOf(times[0])
	}
	return next, false
}

// spawnersSeen are the spawners that would start a cluster's agents.
func (h *Handlers) spawnersSeen(ctx context.Context, spawn *api.SpawnPolicy) []api.SpawnerSeen {
	queues := []string{contract.SpawnerQueue(spawn.Spawner)}
	if spawn.Spawner == "" {
		queues = nil
		for _, platform := range spawn.Platforms() {
			queues = append(queues, contract.SpawnersQueue(platform))
		}
	}
	seen := []api.SpawnerSeen{}
	for _, queue := range queues {
		found, err := h.pollers(ctx, queue)
		if err != nil {
			h.Logger.Debug("the queue of the spawners was not described", zap.Error(err))
		}
		seen = append(seen, found...)
	}
	return seen
}

// pollers are the spawners that poll a queue, by name. Temporal forgets one after some minutes.
func (h *Handlers) pollers(ctx context.Context, queue string) (seen []api.SpawnerSeen, err error) {
	pollers, err := h.Store.Pollers(ctx, queue)
	for _, poller := range pollers {
		if spawner, ok := contract.SpawnerOfIdentity(poller.GetIdentity()); ok {
			seen = append(seen, api.SpawnerSeen{Name: spawner, LastSeen: poller.GetLastAccessTime().AsTime().UTC()})
		}
	}
	slices.SortFunc(seen, func(a, b api.SpawnerSeen) int { return strings.Compare(a.Name, b.Name) })
	return seen, err
}

// listSpawners asks every spawner that was there within the last minutes how it is.
func (h *Handlers) listSpawners(ctx context.Context, _ *struct{}) (page rest.Page[api.Spawner], err error) {
	lookCtx, cancel := context.WithTimeout(ctx, rest.CallTimeout)
	defer cancel()
	seen, err := h.pollers(lookCtx, contract.PresenceQueue)
	if err != nil {
		return page, h.Answer(err, "list the spawners", protocol.CodeInternal)
	}
	page.Items = make([]api.Spawner, len(seen))
	errs := make([]error, len(seen))
	parallel.Each(len(seen), rest.FanOut, func(i int) {
		name := seen[i].Name
		info, answered, err := rest.Ask(ctx, h.Core, contract.FindSpawnerActivity, rest.HubQuestion{
			Queue: contract.SpawnerQueue(name), ID: contract.ReadSpawnerID(name, uuid.NewString()),
			Summary: "how spawner " + name + " is",
		}, contract.None{})
		page.Items[i], errs[i] = spawnerOf(seen[i], &info, answered), err
	})
	return page, cmp.Or(errs...)
}

func spawnerOf(seen api.SpawnerSeen, info *contract.SpawnerInfo, answered bool) api.Spawner {
	s := api.Spawner{SpawnerSeen: seen, Health: api.SpawnerHealthy, Ended: []api.SpawnEnd{}}
	switch {
	case !answered:
		s.Health, s.Problem = api.SpawnerUnknown, "it does not answer; it may have ended"
		return s
	case info.Problem != "":
		s.Health, s.Problem = api.SpawnerUnhealthy, info.Problem
	}
	s.Platform, s.Agents, s.MaxAgents = info.Platform, info.Agents, info.MaxAgents
	s.CPUs, s.MemoryBytes = info.CPUs, info.MemoryBytes
	s.Ended = append(s.Ended, info.Ended...)
	return s
}

func set[T any](field *T, value *T) {
	if value != nil {
		*field = *value
	}
}

// scalings are the records of what scaling has done.
func (h *Handlers) scalings() store.Records[api.ScalingRecord] {
	return store.Records[api.ScalingRecord]{Store: h.Store, Query: contract.ScalingQuery, Partial: partialScaling}
}

// scalingRecord returns the newest action with an id.
func (h *Handlers) scalingRecord(ctx context.Context, in *rest.RecordID) (api.ScalingRecord, error) {
	cluster, number, ok := contract.ParseScalingID(in.ID)
	workflowID := contract.ScalingWorkflowID(cluster, number)
	return rest.RecordOf(ctx, h.Core, h.scalings(), workflowID, ok, protocol.CodeUnknownScaling)
}

func (h *Handlers) list(ctx context.Context, in *listInput) (rest.Page[api.ScalingRecord], error) {
	query := rest.OfType(contract.ScalingWorkflow, rest.Filter(contract.AttrCluster, in.Cluster))
	return rest.PageOf(ctx, h.Core, "list actions of scaling", h.scalings().Page, query, in.RecordPageInput)
}

// partialScaling is what Temporal itself knows of an action.
func partialScaling(k store.Known) (api.ScalingRecord, bool) {
	cluster, number, ok := contract.ScalingOfWorkflowID(k.WorkflowID)
	return api.ScalingRecord{ID: contract.ScalingID(cluster, number), Cluster: cluster, Error: k.Why,
		Status: store.Standing(k, api.ScalingRunning, api.ScalingFailed), StartedAt: k.StartedAt,
		Agents: []api.ScaledAgent{}}, ok
}

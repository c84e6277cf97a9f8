package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
)

// RunTask puts one delivery into the lane that is the task queue of ctx. All deliveries go through it, because a hub
// polls an agent's own lane only while it is open: RunTask opens it with each delivery. Its answer is the future of
// contract.RunTaskActivity.
func RunTask(ctx workflow.Context, in contract.RunTaskInput) contract.Future[contract.AttemptReport] {
	future := contract.RunTaskActivity.Execute(ctx, in)
	_, lane, _ := contract.LaneOfQueue(workflow.GetActivityOptions(ctx).TaskQueue)
	if agent, pinned := task.AgentOfLane(lane); pinned {
		workflow.GoNamed(ctx, "open the agent's lane", func(ctx workflow.Context) {
			openAgentLane(ctx, in.Spec.Cluster, agent, future.Future)
		})
	}
	return future
}

// openAgentLane asks the cluster until it has taken the request, as long as the delivery waits. A cluster refuses it
// when it has too many signals or was deleted; one of the same name may be created.
func openAgentLane(ctx workflow.Context, cluster, agent string, delivery workflow.Future) {
	ctx, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	for wait := time.Second; !delivery.IsReady(); wait = min(2*wait, 5*time.Minute) {
		err := contract.OpenAgentLaneSignal.SendFrom(ctx, contract.ClusterWorkflowID(cluster), "", agent).Get(ctx, nil)
		if err == nil {
			return
		}
		_, _ = workflow.AwaitWithOptions(ctx, Named(wait, "until the agent's lane is opened again"),
			delivery.IsReady)
	}
}

// PlaceAgain is the lane of work that no agent of its lane handles, as the cluster is now: its type may have a lane of
// its own since then. Work for one agent or shard stays.
func PlaceAgain(ctx workflow.Context, spec *api.TaskSpec, queue string) string {
	_, lane, _ := contract.LaneOfQueue(queue)
	if lane != task.DefaultLane && !task.IsOpened(lane) {
		return queue
	}
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:              contract.WorkerQueue,
		ScheduleToCloseTimeout: 10 * time.Second,
		StartToCloseTimeout:    5 * time.Second,
		Summary:                "find the lane again",
	})
	place, err := contract.PlaceTaskActivity.Execute(ctx, contract.PlaceOfSpec(spec, spec.ShardKey)).Get(ctx)
	if err != nil {
		return queue
	}
	return place.Lane
}

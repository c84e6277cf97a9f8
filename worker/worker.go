// Package worker runs Mainstay's workflows and the activities that call anything but agents.
package worker

import (
	"fmt"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/prometheus/client_golang/prometheus"
	"go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/activities"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/workflows"
	"mainstay.dev/mainstay/workflows/array"
	"mainstay.dev/mainstay/workflows/cluster"
	"mainstay.dev/mainstay/workflows/job"
	"mainstay.dev/mainstay/workflows/run"
	"mainstay.dev/mainstay/workflows/task"
)

// Options sizes a worker.
type Options struct {
	// Namespace is the one of the client.
	Namespace string
	// Registerer takes the metrics of what the worker does; nil drops them.
	Registerer prometheus.Registerer
	// WorkflowCache bounds the workflows that are kept in memory between their events, of all workers of this process.
	// A task that waits in its lane is one, of about 25 KiB of heap and as much of stacks; one that was dropped is read
	// back from its history. 0 means 1000, or fewer where the machine or its control group has less than 16 GiB.
	WorkflowCache int
	// AssignmentTypes are the types of events from outside whose data is a task. nil means activities.AssignmentTypes.
	AssignmentTypes []string
}

// RegisterWorkflows registers all workflows under their contract names. Worker, tests and replayer share it.
func RegisterWorkflows(r sdkworker.WorkflowRegistry) {
	r.RegisterWorkflowWithOptions(cluster.Workflow, workflow.RegisterOptions{Name: contract.ClusterWorkflow})
	r.RegisterWorkflowWithOptions(task.Workflow, workflow.RegisterOptions{Name: contract.TaskWorkflow})
	r.RegisterWorkflowWithOptions(array.Workflow, workflow.RegisterOptions{Name: contract.ArrayWorkflow})
	r.RegisterWorkflowWithOptions(run.Workflow, workflow.RegisterOptions{Name: contract.RunWorkflow})
	r.RegisterWorkflowWithOptions(workflows.Failover, workflow.RegisterOptions{Name: contract.FailoverWorkflow})
	r.RegisterWorkflowWithOptions(workflows.Drain, workflow.RegisterOptions{Name: contract.DrainWorkflow})
	r.RegisterWorkflowWithOptions(workflows.Hub, workflow.RegisterOptions{Name: contract.HubWorkflow})
	r.RegisterWorkflowWithOptions(workflows.Firing, workflow.RegisterOptions{Name: contract.FiringWorkflow})
	r.RegisterWorkflowWithOptions(workflows.StateSync, workflow.RegisterOptions{Name: contract.StateSyncWorkflow})
	r.RegisterWorkflowWithOptions(workflows.Access, workflow.RegisterOptions{Name: contract.AccessWorkflow})
	r.RegisterWorkflowWithOptions(workflows.Bulk, workflow.RegisterOptions{Name: contract.BulkWorkflow})
	r.RegisterWorkflowWithOptions(workflows.HealingCycle, workflow.RegisterOptions{Name: contract.HealingCycleWorkflow})
	r.RegisterWorkflowWithOptions(workflows.HealingAction,
		workflow.RegisterOptions{Name: contract.HealingActionWorkflow})
	r.RegisterWorkflowWithOptions(job.Workflow, workflow.RegisterOptions{Name: contract.JobWorkflow})
	r.RegisterWorkflowWithOptions(workflows.Inbound, workflow.RegisterOptions{Name: contract.InboundWorkflow})
	r.RegisterWorkflowWithOptions(workflows.Scaling, workflow.RegisterOptions{Name: contract.ScalingWorkflow})
	r.RegisterWorkflowWithOptions(workflows.ScalingSweep, workflow.RegisterOptions{Name: contract.ScalingSweepWorkflow})
}

// Metrics are what a worker counts. Activities count, so that nothing is counted again when a workflow is replayed.
type Metrics struct {
	Failovers *activities.FailoverMetrics
	Healing   *activities.HealingMetrics
	HubsLost  prometheus.Counter
}

// NewMetrics registers the metrics of a worker.
func NewMetrics(r prometheus.Registerer) Metrics {
	return Metrics{Failovers: activities.NewFailoverMetrics(r), Healing: activities.NewHealingMetrics(r),
		HubsLost: activities.NewHubsLost(r)}
}

const (
	// workflowPollers is how many polls are open for new workflows, and as many again for those in memory. Polls for
	// both would serve the latter while any of them has work: with thousands of them, nobody's schedule would fire.
	workflowPollers = 8
	// mostCached and leastCached bound the workflows that are kept in memory between their events.
	mostCached, leastCached = 1000, 100
	// memoryOfCached is how much of the machine's memory, in bytes, must be there for each of them. A workflow with a
	// payload of 1 MiB keeps it twice, with as much garbage at times: so they take a quarter at worst.
	memoryOfCached = 16 << 20
)

// cacheFor is how many workflows to keep with this much memory, in bytes; 0: unknown.
func cacheFor(memory uint64) int {
	if memory == 0 {
		return mostCached
	}
	return int(min(max(memory/memoryOfCached, leastCached), mostCached))
}

// Start runs a worker until stop is called. stop waits for what is under way and may be called twice.
func Start(c client.Client, o Options) (stop func(), err error) {
	if o.WorkflowCache == 0 {
		memory, _ := memlimit.ApplyFallback(memlimit.FromCgroup, memlimit.FromSystem)()
		o.WorkflowCache = cacheFor(memory)
	}
	if o.Registerer == nil {
		o.Registerer = prometheus.NewRegistry()
	}
	sdkworker.SetStickyWorkflowCacheSize(o.WorkflowCache)
	w := sdkworker.New(c, contract.WorkerQueue, sdkworker.Options{
		WorkflowTaskPollerBehavior: sdkworker.NewPollerBehaviorAutoscaling(
			sdkworker.PollerBehaviorAutoscalingOptions{MinimumNumberOfPollers: workflowPollers,
				InitialNumberOfPollers: workflowPollers, MaximumNumberOfPollers: workflowPollers}),
		MaxConcurrentActivityTaskPollers: 2,
		// A cluster of thousands of agents compresses its state, which takes a busy machine more than the SDK's second.
		DeadlockDetectionTimeout: 10 * time.Second,
	})
	RegisterWorkflows(w)
	metrics := NewMetrics(o.Registerer)
	control := &activities.Control{Client: c, Namespace: o.Namespace, Lost: metrics.HubsLost, Cycles: metrics.Healing}
	w.RegisterActivity(control)
	places := &activities.ClusterPlaces{Control: control}
	w.RegisterActivity(activities.NewEvaluator(places))
	w.RegisterActivity(activities.NewDispatcher(places, o.AssignmentTypes))
	w.RegisterActivity(metrics.Failovers)
	w.RegisterActivity(metrics.Healing)
	if err := w.Start(); err != nil {
		return nil, fmt.Errorf("start the worker on queue %s: %w", contract.WorkerQueue, err)
	}
	return w.Stop, nil
}

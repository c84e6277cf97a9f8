package hub

import (
	"context"
	"os"
	"strconv"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	workerpb "go.temporal.io/api/worker/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.uber.org/zap"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"mainstay.dev/mainstay/contract"
)

const (
	// registryBatch bounds the agents in one call.
	registryBatch = 500
	// registrySettle gathers what changes at once into one publication.
	registrySettle = 100 * time.Millisecond
	// sdkName is what the Workers page shows as an agent's SDK.
	sdkName = "mainstay-agent"
)

// publish keeps Temporal's worker registry up to date until the hub stops: all sessions every heartbeat interval, and
// soon after one opens or ends. The registry is memory only and a read model; nothing is decided from it.
func (h *Hub) publish() {
	tick := time.NewTicker(h.config.Timing.HeartbeatInterval)
	defer tick.Stop()
	for {
		select {
		case <-h.run.Done():
			return
		case <-tick.C:
		case <-h.notices.publish:
			h.pause(registrySettle)
		}
		h.publishAll()
	}
}

func (h *Hub) publishAll() {
	entries := h.notices.takeGone()
	h.mu.Lock()
	for _, s := range h.sessions {
		entries = append(entries, h.workerEntry(s))
	}
	h.mu.Unlock()
	for len(entries) > 0 {
		n := min(len(entries), registryBatch)
		ctx, cancel := context.WithTimeout(h.run, 5*time.Second)
		_, err := h.service.RecordWorkerHeartbeat(ctx, &workflowservice.RecordWorkerHeartbeatRequest{
			Namespace: h.namespace, Identity: h.identity(), WorkerHeartbeat: entries[:n], ResourceId: "worker:" + h.identity(),
		})
		cancel()
		if err != nil {
			h.log.Debug("The worker registry was not updated", zap.Error(err))
		}
		entries = entries[n:]
	}
}

// workerEntry is a session as an entry of the worker registry. The mutex is held.
func (h *Hub) workerEntry(s *session) *workerpb.WorkerHeartbeat {
	status := enumspb.WORKER_STATUS_RUNNING
	if s.stopping {
		status = enumspb.WORKER_STATUS_SHUTTING_DOWN
	}
	s.noteWork(time.Now())
	return &workerpb.WorkerHeartbeat{
		WorkerInstanceKey: s.instance,
		WorkerIdentity:    contract.AgentIdentity(s.cluster, s.agent),
		HostInfo: &workerpb.WorkerHostInfo{
			HostName: s.registration.Host, ProcessId: strconv.Itoa(s.registration.PID),
			CurrentHostCpuUsage: float32(s.metrics.CPUPercent / 100), CurrentHostMemUsage: float32(s.metrics.MemoryPercent / 100),
		},
		TaskQueue: contract.ClusterLane(s.cluster), SdkName: sdkName, SdkVersion: s.registration.Version, Status: status,
		StartTime: timestamppb.New(s.openedAt), HeartbeatTime: timestamppb.New(s.lastContact),
		ElapsedSinceLastHeartbeat: durationpb.New(time.Since(s.lastContact)),
		Plugins:                   []*workerpb.PluginInfo{contract.HealthPlugin(s.health, s.score)},
		ActivityTaskSlotsInfo: &workerpb.WorkerSlotsInfo{
			CurrentAvailableSlots: int32(max(0, s.registration.MaxTasks-len(s.attempts))), CurrentUsedSlots: int32(len(s.attempts)),
			SlotSupplierKind: "Fixed", TotalProcessedTasks: int32(s.counters.Completed + s.counters.Failed), TotalFailedTasks: int32(s.counters.Failed),
		},
		// When it last had work: what scaling knows of its idleness.
		ActivityPollerInfo: &workerpb.WorkerPollerInfo{CurrentPollers: 1, LastSuccessfulPollTime: timestamppb.New(s.workedAt)},
	}
}

// workerGone is the entry that takes a session out of the registry at once.
func (s *session) workerGone() *workerpb.WorkerHeartbeat {
	return &workerpb.WorkerHeartbeat{
		WorkerInstanceKey: s.instance, WorkerIdentity: contract.AgentIdentity(s.cluster, s.agent), TaskQueue: contract.ClusterLane(s.cluster),
		SdkName: sdkName, Status: enumspb.WORKER_STATUS_SHUTDOWN, HeartbeatTime: timestamppb.Now(), StartTime: timestamppb.New(s.openedAt),
	}
}

func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}

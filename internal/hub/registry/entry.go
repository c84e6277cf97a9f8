package registry

import (
	"strconv"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	workerpb "go.temporal.io/api/worker/v1"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// sdkName is what the Workers page shows as an agent's SDK.
const sdkName = "mainstay-agent"

// Agent is a session as the registry shows it.
type Agent struct {
	*protocol.Register
	Stopping                        bool
	Status                          api.AgentStatus // the live one
	Since                           time.Time       // when that began
	OpenedAt, LastContact, WorkedAt time.Time
	Running                         int // attempts
	Metrics                         *protocol.Metrics
	Counters                        protocol.Counters
	Health                          api.HealthLevel
	HealthScore                     float64
}

// Entry is the agent's entry.
func (a *Agent) Entry(now time.Time) *workerpb.WorkerHeartbeat {
	e := entry(a.Register, enumspb.WORKER_STATUS_RUNNING, a.OpenedAt, a.LastContact)
	if a.Stopping {
		e.Status = enumspb.WORKER_STATUS_SHUTTING_DOWN
	}
	e.TaskQueue = contract.ClusterLane(a.Cluster)
	e.HostInfo.CurrentHostCpuUsage = contract.ShareOf(a.Metrics.CPUPercent)
	e.HostInfo.CurrentHostMemUsage = contract.ShareOf(a.Metrics.MemoryPercent)
	e.ElapsedSinceLastHeartbeat = durationpb.New(now.Sub(a.LastContact))
	e.Plugins = append(e.Plugins, contract.HealthPlugin(a.Health, a.HealthScore))
	if a.Status != api.AgentOnline {
		e.Plugins = append(e.Plugins, contract.StatusPlugin(a.Status, a.Since))
	}
	e.ActivityTaskSlotsInfo = &workerpb.WorkerSlotsInfo{
		CurrentAvailableSlots: int32(max(0, a.MaxTasks-a.Running)),
		CurrentUsedSlots:      int32(a.Running),
		SlotSupplierKind:      "Fixed",
		TotalProcessedTasks:   int32(a.Counters.Completed + a.Counters.Failed),
		TotalFailedTasks:      int32(a.Counters.Failed),
	}
	// Scaling reads the agent's idleness from the time when it last had work.
	e.ActivityPollerInfo = &workerpb.WorkerPollerInfo{CurrentPollers: 1,
		LastSuccessfulPollTime: timestamppb.New(a.WorkedAt)}
	return e
}

// Gone is the entry that removes a session at once.
func Gone(r *protocol.Register, openedAt time.Time) *workerpb.WorkerHeartbeat {
	e := entry(r, enumspb.WORKER_STATUS_SHUTDOWN, openedAt, time.Now())
	e.TaskQueue = contract.ClusterLane(r.Cluster)
	return e
}

// Rival is the entry of a process that waits for its agent id since a time, and asked for it last at seen. One that
// waits no more removes its entry.
func Rival(r *protocol.Register, since, seen time.Time, waits bool) *workerpb.WorkerHeartbeat {
	status := enumspb.WORKER_STATUS_SHUTDOWN
	if waits {
		status = enumspb.WORKER_STATUS_UNSPECIFIED
	}
	e := entry(r, status, since, seen)
	e.Plugins = append(e.Plugins, contract.RivalPlugin(r.Address))
	return e
}

func entry(r *protocol.Register, status enumspb.WorkerStatus, start, heartbeat time.Time) *workerpb.WorkerHeartbeat {
	return &workerpb.WorkerHeartbeat{
		WorkerInstanceKey: contract.AgentKey(r.Cluster, r.AgentID, r.InstanceID),
		WorkerIdentity:    contract.AgentIdentity(r.Cluster, r.AgentID),
		HostInfo:          &workerpb.WorkerHostInfo{HostName: r.Host, ProcessId: strconv.Itoa(r.PID)},
		SdkName:           sdkName,
		SdkVersion:        r.Version,
		Status:            status,
		StartTime:         timestamppb.New(start),
		HeartbeatTime:     timestamppb.New(heartbeat),
	}
}

package hub

import (
	"context"
	"strconv"
	"sync"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	workerpb "go.temporal.io/api/worker/v1"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/limit"
	"mainstay.dev/sdk/api"
)

// sdkName is what the Workers page shows as an agent's SDK.
const sdkName = "mainstay-agent"

// workerEntry is a session as an entry of the worker registry.
func (s *session) workerEntry(now time.Time) *workerpb.WorkerHeartbeat {
	status := enumspb.WORKER_STATUS_RUNNING
	if s.stopping {
		status = enumspb.WORKER_STATUS_SHUTTING_DOWN
	}
	s.markWork(now)
	level, score := s.health.Last()
	plugins := []*workerpb.PluginInfo{contract.HealthPlugin(level, score)}
	if live, since := s.status(); live != api.AgentOnline {
		plugins = append(plugins, contract.StatusPlugin(live, since))
	}
	return &workerpb.WorkerHeartbeat{
		WorkerInstanceKey: contract.AgentKey(s.cluster, s.agent, s.instance),
		WorkerIdentity:    contract.AgentIdentity(s.cluster, s.agent),
		HostInfo: &workerpb.WorkerHostInfo{
			HostName: s.registration.Host, ProcessId: strconv.Itoa(s.registration.PID),
			CurrentHostCpuUsage: contract.ShareOf(s.metrics.CPUPercent),
			CurrentHostMemUsage: contract.ShareOf(s.metrics.MemoryPercent),
		},
		TaskQueue:  contract.ClusterLane(s.cluster),
		SdkName:    sdkName,
		SdkVersion: s.registration.Version,
		Status:     status,
		StartTime:  timestamppb.New(s.openedAt), HeartbeatTime: timestamppb.New(s.lastContact),
		ElapsedSinceLastHeartbeat: durationpb.New(now.Sub(s.lastContact)),
		Plugins:                   plugins,
		ActivityTaskSlotsInfo: &workerpb.WorkerSlotsInfo{
			CurrentAvailableSlots: int32(max(0, s.registration.MaxTasks-len(s.attempts))),
			CurrentUsedSlots:      int32(len(s.attempts)),
			SlotSupplierKind:      "Fixed",
			TotalProcessedTasks:   int32(s.counters.Completed + s.counters.Failed),
			TotalFailedTasks:      int32(s.counters.Failed),
		},
		// Scaling reads the agent's idleness from the time when it last had work.
		ActivityPollerInfo: &workerpb.WorkerPollerInfo{CurrentPollers: 1,
			LastSuccessfulPollTime: timestamppb.New(s.workedAt)},
	}
}

// status is the session's live status, and since when it has it.
func (s *session) status() (api.AgentStatus, time.Time) {
	switch {
	case s.judged == cluster.Suspect:
		return api.AgentSuspect, s.judgedAt
	case s.judged == cluster.Warning:
		return api.AgentWarning, s.judgedAt
	case s.stopping:
		return api.AgentStopping, s.stoppingAt
	}
	return api.AgentOnline, s.openedAt
}

// workerGone is the entry that removes a session from the registry at once.
func (s *session) workerGone() *workerpb.WorkerHeartbeat {
	return &workerpb.WorkerHeartbeat{
		WorkerInstanceKey: contract.AgentKey(s.cluster, s.agent, s.instance),
		WorkerIdentity:    contract.AgentIdentity(s.cluster, s.agent),
		TaskQueue:         contract.ClusterLane(s.cluster),
		SdkName:           sdkName,
		Status:            enumspb.WORKER_STATUS_SHUTDOWN,
		HeartbeatTime:     timestamppb.Now(),
		StartTime:         timestamppb.New(s.openedAt),
	}
}

const (
	// Looks for one agent id: so many a second, and so many at once. Beyond that one look at all ids serves onlineFor.
	onlineRate, onlineBurst = 10.0, 20
	onlineFor               = time.Second
)

// online knows in which clusters agent ids are online, by the live registry. That goes through all agents for each
// question, so registrations that come together share one.
type online struct {
	hub   *Hub
	alone *limit.Rate

	mu       sync.Mutex
	readAt   time.Time
	clusters map[string][]string // by agent
}

func (o *online) clustersOf(ctx context.Context, agent string, now time.Time) ([]string, error) {
	if o.alone.Take("", 1, now) == 0 {
		found, err := o.hub.store.OnlineIn(ctx, agent)
		return found[agent], err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if now.Sub(o.readAt) >= onlineFor {
		all, err := o.hub.store.OnlineIn(ctx, "")
		if err != nil {
			return nil, err
		}
		o.readAt, o.clusters = time.Now(), all
	}
	return o.clusters[agent], nil
}

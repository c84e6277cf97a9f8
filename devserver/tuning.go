package devserver

import (
	"time"

	"go.temporal.io/server/common/dynamicconfig"
)

// tuning is the dynamic configuration of the embedded server. docs/TEMPORAL.md tells operators of other servers which
// of it they want too.
func tuning() dynamicconfig.StaticClient {
	settings := []struct {
		key   dynamicconfig.Key
		value any
		why   string
	}{
		{dynamicconfig.TransferProcessorMaxPollRPS.Key(), 1000,
			"20 a second and shard by default, which costs about 45 ms at every hop of a workflow"},
		{dynamicconfig.TimerProcessorMaxPollRPS.Key(), 1000, "likewise for timers: backoffs and leases"},
		{dynamicconfig.OutboundProcessorMaxPollRPS.Key(), 200, "likewise for pushed cancellations"},
		{dynamicconfig.FrontendMaxConcurrentLongRunningRequestsPerInstance.Key(), 20_000,
			"every agent has a lane of its own, and so an open poll; 1200 by default"},
		{dynamicconfig.FrontendRPS.Key(), 100_000, "one tenant on its own machine needs no request limits"},
		{dynamicconfig.FrontendMaxNamespaceRPSPerInstance.Key(), 100_000, "as above"},
		{dynamicconfig.FrontendMaxNamespaceVisibilityRPSPerInstance.Key(), 1_000, "as above, for lists"},
		{dynamicconfig.HistoryRPS.Key(), 100_000, "as above"},
		{dynamicconfig.MatchingRPS.Key(), 100_000, "as above"},
		{dynamicconfig.FrontendPersistenceMaxQPS.Key(), 100_000, "as above"},
		{dynamicconfig.HistoryPersistenceMaxQPS.Key(), 100_000, "as above"},
		{dynamicconfig.MatchingPersistenceMaxQPS.Key(), 100_000, "as above"},
		{dynamicconfig.MatchingNumTaskqueueReadPartitions.Key(), 1,
			"priority and fairness hold within one partition only"},
		{dynamicconfig.MatchingNumTaskqueueWritePartitions.Key(), 1, "as above"},
		{dynamicconfig.MatchingEnableFairness.Key(), true, "tenants share a lane fairly"},
		{dynamicconfig.TaskQueueInfoByBuildIdTTL.Key(), time.Second,
			"the queue view shows lanes as they are now; 5 s old by default"},
		{dynamicconfig.EnableCancelWorkerPollsOnShutdown.Key(), true,
			"a hub gives back the polls of a lane that nobody serves without losing a task"},
		{dynamicconfig.EnableCancelActivityWorkerCommand.Key(), true,
			"a cancelled task's agent hears at once, not with the next attempt heartbeat"},
		{dynamicconfig.WorkerCommandsEnabled.Key(), true, "as above"},
		{dynamicconfig.MemoSizeLimitWarn.Key(), 256 << 10,
			"the memo of the tokens is larger than the 2 kB of the default, and its warnings would hide others"},
		{dynamicconfig.HistoryCacheHostLevelMaxSize.Key(), 8_096, "bounds the memory of a long-lived process"},
	}
	values := dynamicconfig.StaticClient{}
	for _, s := range settings {
		values[s.key] = s.value
	}
	return values
}

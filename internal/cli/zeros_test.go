package cli

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/testsuite/zeros"
	"mainstay.dev/sdk/api"
)

// zeroOfRequests are the counts and durations of requests of which zero is a value, with what it means. Of any other,
// zero is refused: give a new one a minimum above zero (a duration: least), or say here what its zero does.
const zeroOfRequests = `
ArrayRequest.stop_grace: killed at once
ArrayRequest.disconnect_grace: lost at once
ArrayRequest.tolerate: none may fail
ClusterChanges.desired_agents: not watched
ClusterChanges.min_agents: none are needed
ClusterConfig.desired_agents: not watched
ClusterConfig.min_agents: none are needed
ClusterSettings.desired_agents: not watched
ClusterSettings.min_agents: none are needed
Device.index: the first
RecoveryPolicy.attempts: none
RolloutPolicy.canary: none
ScaleDownRule.queue_threshold: never, by the queue
ScaleJobRequest.count: none
ScaleRequest.desired: none
ScaleRequest.min: none are needed
ScaleUpRule.queue_threshold: one that waits is enough
ScheduleRequest.jitter: none
ScheduleRequest.offset: none
TaskDefaults.stop_grace: killed at once
TaskDefaults.disconnect_grace: lost at once
TaskRequest.stop_grace: killed at once
TaskRequest.disconnect_grace: lost at once
read-task-log?after: from the beginning
`

// zeroOfAgents are those of what agents report: counters, and times that may have been too short to tell.
const zeroOfAgents = `
Counters.completed Counters.failed ElementResult.ms ElementResult.n Log.attempt Metrics.cpu_percent
Metrics.disk_percent Metrics.memory_percent Poll.answered Poll.health Poll.sequence Progress.estimated_duration
Progress.percent Register.pid Result.attempt RunningAttempt.attempt RunningAttempt.beacon_age RunningAttempt.beacons
RunningAttempt.health_changes RunningAttempt.health_turns StateEntry.epoch StateEntry.number StateLine.epoch
StateLine.number StateLine.size
StateSummary.entries StateVersion.epoch StateVersion.number
`

// zeroOfDefinitions are those of job definitions.
const zeroOfDefinitions = `
Corrections.attempts: none
JobDefinition.stop_grace: killed at once
JobDefinition.disconnect_grace: lost at once
InstanceDisconnect.grace: its instances are replaced at once
Instances.count: none
RecoveryPolicy.attempts: none
ServiceCheck.healthy_after: from the first check on
Step.stop_grace: killed at once
Step.disconnect_grace: lost at once
TaskSpec.stop_grace: killed at once
TaskSpec.disconnect_grace: lost at once
JobUpdate.canary: none
`

func TestZeroOfARequestIsNeverTheDefault(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile(committedDocument)
	require.NoError(t, err)
	found, err := zeros.InRequests(document)
	require.NoError(t, err)
	require.ElementsMatch(t, append(listed(zeroOfRequests), strings.Fields(zeroOfAgents)...), found)
}

func TestZeroOfADefinitionIsNeverTheDefault(t *testing.T) {
	t.Parallel()
	require.ElementsMatch(t, listed(zeroOfDefinitions), zeros.Of(reflect.TypeFor[api.JobDefinition](), "json"))
}

// listed are the names before the colons.
func listed(lines string) (names []string) {
	for line := range strings.Lines(strings.TrimSpace(lines)) {
		name, _, _ := strings.Cut(line, ":")
		names = append(names, name)
	}
	return names
}

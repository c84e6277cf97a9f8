//go:build linux

package chaos

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/testsuite/build"
)

// testPlants are bugs that tests of other packages must notice, by name: each with its package and its test.
var testPlants = map[string][2]string{
	"event-tenant-unchecked": {"testsuite/e2e", "TestEventsStartRunsOnce"},
	"event-key-unnamed":      {"testsuite/e2e", "TestEventsStartRunsOnce"},
	"event-trimmed":          {"testsuite/e2e", "TestQuarantine"},
	"death-untold":           {"testsuite/e2e", "TestQuarantineOfWhatDied"},
	"unmatched-dropped":      {"testsuite/e2e", "TestEveryEventHasOneEnd"},
	"beacon-unheard":         {"testsuite/e2e", "TestSilentTasksRunAgain"},
	"corrections-endless":    {"testsuite/e2e", "TestResultsAreCorrected"},
	"route-forgotten":        {"testsuite/e2e", "TestModelsFailOver"},
	"key-told":               {"testsuite/e2e", "TestModelsFailOver"},
	"tool-repeated":          {"internal/agenttasks/mcptool", "TestACallIsNotRepeated"},
	"tool-key-changes":       {"internal/agenttasks/mcptool", "TestToolsAreCalled"},
	"verdict-kept":           {"workflows/run", "TestVerdicts"},
	"turns-forgotten":        {"workflows/run", "TestTurnsContinueAsNew"},
	"call-key-reused":        {"workflows/run", "TestTurns"},
	"unknown-tool-called":    {"internal/flow", "TestCallsAreBounded"},
	"health-flaps":           {"testsuite/e2e", "TestHealthIsToldOnce"},
	"spans-dropped":          {"internal/telemetry/tracing", "TestSpansOutlastTheirCollector"},
	"grace-ignored":          {"testsuite/e2e", "TestNomad16515ADisconnectPolicyHeedsDoNotReschedule"},
	"grace-forgotten":        {"internal/hub", "TestAHubThatTakesAnInstanceOverKnowsItsDisconnectGrace"},
	"offline-counted":        {"testsuite/e2e", "TestASystemJobHasAnInstanceOnEachAgent"},
	"service-ends":           {"workflows/task", "TestServiceBeginsAgain"},
	"sysbatch-again":         {"internal/job", "TestASysbatchJobRunsOnceOnEachAgent"},
	"source-id-lost":         {"internal/job", "TestIdsOfInstances"},
	"state-not-restored":     {"workflows/task", "TestTaskTellsTheNextAgent"},
	"mode-ignored":           {"testsuite/e2e", "TestRecoveryModes"},
	"window-from-last":       {"internal/task", "TestRecoveryWaits"},
	"restart-uncounted":      {"testsuite/e2e", "TestRestartsBeginWhenTheyShould"},
	"blocked-counted":        {"testsuite/e2e", "TestBlockedPlacementCountsNothing"},
	"exclusion-preferred":    {"testsuite/e2e", "TestBlockedPlacementCountsNothing"},
	"drain-counted":          {"testsuite/e2e", "TestDrainMovesWhatIsLeftAtTheDeadline"},
	"allocation-forgotten":   {"testsuite/e2e", "TestNomad6708GPUsAreSharedByMemory"},
	"requires-ignored":       {"testsuite/e2e", "TestRequiredServicesAreWaitedFor"},
	"unhealthy-found":        {"testsuite/e2e", "TestNomad15603OnlyHealthyInstancesAreFound"},
	"revert-waits":           {"testsuite/e2e", "TestNomad10882ARevertIsImmediateAndHasNoCanaries"},
	"sick-last":              {"testsuite/e2e", "TestNomad3230UnhealthyInstancesAreReplacedFirst"},
}

// TestPlantsInTests runs each of these tests as it should be, and then with each of its bugs planted.
func TestPlantsInTests(t *testing.T) {
	if testing.Short() {
		t.Skip("chaos: skipped by -short; it takes some minutes")
	}
	dir := t.TempDir()
	overlay, err := writeOverlay(dir)
	require.NoError(t, err)
	passed := map[[2]string]bool{}
	for _, name := range inPart(t, slices.Collect(maps.Keys(testPlants))) {
		where := testPlants[name]
		t.Run(name, func(t *testing.T) {
			folder, err := filepath.Abs(filepath.Join("../..", where[0]))
			require.NoError(t, err)
			program := filepath.Join(dir, filepath.Base(folder)+".test")
			if _, err := os.Stat(program); err != nil {
				require.NoError(t, build.Go("test", "-c", "-overlay", overlay, "-o", program, folder))
			}
			run := func(plant string) (string, error) {
				command := exec.CommandContext(t.Context(), program, "-test.run", "^"+where[1]+"$", "-test.timeout", "5m")
				command.Dir, command.Env = folder, append(os.Environ(), plantEnv+"="+plant)
				output, err := command.CombinedOutput()
				return string(output), err
			}
			if !passed[where] {
				passed[where] = true
				output, err := run("")
				require.NoError(t, err, output)
			}
			begun := time.Now()
			output, err := run(name)
			require.Error(t, err, "the bug is not noticed by %s", where[1])
			require.Regexp(t, "Error Trace|panic: ", output, "the test fails by what it sees")
			t.Logf("%s is noticed by %s in %s", name, where[1], time.Since(begun).Round(time.Second))
		})
	}
}

// TestTestsOfPlantsExist finds each of these tests in its package, without building it.
func TestTestsOfPlantsExist(t *testing.T) {
	t.Parallel()
	for name, where := range testPlants {
		files, err := filepath.Glob(filepath.Join("../..", where[0], "*_test.go"))
		require.NoError(t, err)
		found := slices.ContainsFunc(files, func(file string) bool {
			text, err := os.ReadFile(file)
			return err == nil && strings.Contains(string(text), "func "+where[1]+"(")
		})
		require.True(t, found, "%s: there is no %s in %s", name, where[1], where[0])
	}
}

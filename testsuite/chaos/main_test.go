//go:build linux

package chaos

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The options of a run. With the same ones the schedule is the same.
var (
	flagSeed     = flag.Uint64("chaos.seed", 1, "seed of the faults and of the work")
	flagDuration = flag.Duration("chaos.duration", 20*time.Second, "how long faults are injected")
	flagTasks    = flag.Int("chaos.tasks", 100, "tasks to submit, spread over the duration")
	flagRuns     = flag.Int("chaos.runs", 8, "runs of a job with steps to dispatch, spread over the duration")
	flagArrays   = flag.Int("chaos.arrays", 3, "arrays to submit, spread over the duration")
	flagPoison   = flag.Int("chaos.poison", 200, "elements of the array of which one ends its agents")
	flagAgents   = flag.Int("chaos.agents", 6,
		"agents, spread over an active_active, an active_passive and a sharded cluster")
	flagOnly = flag.String("chaos.only", "",
		"parts of the names of the faults to inject, separated by commas; empty: all of them")
	flagPart = flag.String("chaos.part", "0/1",
		"which of the planted bugs to try: 2/6 takes the third of every six, by their names")
	flagDefaults = flag.Bool("chaos.default-timing", false,
		"the thresholds that users have, instead of a quarter of them")
)

// buildDir holds what the run builds.
var buildDir string

// inPart returns the names that are in the part of them that flagPart asks for.
func inPart(t testing.TB, names []string) []string {
	t.Helper()
	var part, parts int
	_, err := fmt.Sscanf(*flagPart, "%d/%d", &part, &parts)
	require.NoError(t, err, "-chaos.part is like 2/6")
	require.True(t, part >= 0 && part < parts, "-chaos.part is from 0/N to N-1/N")
	var chosen []string
	for i, name := range slices.Sorted(slices.Values(names)) {
		if i%parts == part {
			chosen = append(chosen, name)
		}
	}
	return chosen
}

// TestMain lets the test binary play the agents as well.
func TestMain(m *testing.M) {
	if spec := os.Getenv(leafEnv); spec != "" {
		runLeaf(spec)
	}
	if spec := os.Getenv(agentEnv); spec != "" {
		runAgent(spec)
	}
	flag.Parse()
	var err error
	if buildDir, err = os.MkdirTemp("", "mainstay-chaos-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(buildDir)
	os.Exit(code)
}

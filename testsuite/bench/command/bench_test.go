package command

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/agent"
	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/cli/clitest"
	"mainstay.dev/mainstay/testsuite/bench"
)

func TestMain(m *testing.M) { clitest.Main(m, clitest.Root(New)) }

func TestBenchUsage(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args []string
		says string
	}{
		"rounds":  {[]string{"throughput", "--rounds", "0"}, "--rounds must be 1 to 1000"},
		"clients": {[]string{"throughput", "--clients", "1001"}, "--clients must be 1 to 1000"},
		"durability": {[]string{"throughput", "--durability", "some"},
			"--durability must be process, power, none or all"},
		"two storages":   {[]string{"throughput", "--durability", "none", "--memory"}, "--memory or --durability"},
		"unknown fault":  {[]string{"failover", "--only", "kill,flood"}, "--only must name some of kill, freeze"},
		"too few agents": {[]string{"failover", "--agents", "4"}, "--agents must be 5 to 1000"},
		"away":           {[]string{"failover", "--away", "-1s"}, "--away must not be negative"},
		"idle agents":    {[]string{"idle", "--agents", "0"}, "--agents must be 1 to 1000"},
		"idle time":      {[]string{"idle", "--for", "1ms"}, "--for must be at least 1s"},
		"queue tasks":    {[]string{"queue", "--tasks", "19"}, "--tasks must be 20 to 100000"},
		"queue depth":    {[]string{"queue", "--depth", "0"}, "--depth must be 10 to 1000000"},
		"queue rate":     {[]string{"queue", "--rate", "-1"}, "--rate must be 0 to 10000"},
		"unknown part": {[]string{"queue", "--only", "order,width"},
			"--only must name some of order, lanes, fairness, latency, control, depth"},
		"output":          {[]string{"idle", "-o", "xml"}, "--output must be text or json"},
		"unknown command": {[]string{"speed"}, `there is no command "mainstay bench speed"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := clitest.Run(t.Context(), "", append([]string{"bench"}, test.args...)...)
			require.Equal(t, app.ExitUsage, r.Code, r.Stderr)
			require.Contains(t, r.Stderr, test.says)
			require.Empty(t, r.Stdout)
		})
	}
}

func TestBenchStorages(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		b        throughput
		names    []string
		settings []bench.Setting
	}{
		"one": {throughput{durability: "power"}, []string{"power"}, []bench.Setting{{Durability: "power"}}},
		"memory": {throughput{durability: "process", memory: true}, []string{"memory"},
			[]bench.Setting{{Memory: true}}},
		"all": {throughput{durability: "all"}, []string{"power", "process", "none", "memory"},
			[]bench.Setting{{Durability: "power"}, {Durability: "process"}, {Durability: "none"}, {Memory: true}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			names, settings := test.b.settings()
			require.Equal(t, test.names, names)
			require.Equal(t, test.settings, settings)
		})
	}
}

func TestBenchSideSumsUp(t *testing.T) {
	t.Parallel()
	side := sideOf(bench.Measured{
		Name:      "x",
		PerSecond: []float64{10, 30, 20},
		Latency:   []time.Duration{2 * time.Millisecond, time.Millisecond},
		Tasks:     4,
		CPU:       bench.CPU{Server: 8 * time.Millisecond, All: 12 * time.Millisecond},
	})
	require.Equal(t, sideReport{Name: "x", TasksPerSecond: []float64{10, 30, 20}, Median: 20, Latencies: 2, P50: 1,
		P99: 2, Max: 2, ServerCPU: 2, AllCPU: 3}, side)
	data, err := json.Marshal(side)
	require.NoError(t, err)
	require.Contains(t, string(data), `"submit_to_begin_p50_ms":1`)
}

func TestEachAgentNumbersThem(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var ids []string
	broken := errors.New("broken")
	err := eachAgent(agent.Options{ID: "x"}, 3, func(o agent.Options) error {
		mu.Lock()
		defer mu.Unlock()
		ids = append(ids, o.ID)
		if o.ID == "x-2" {
			return broken
		}
		return nil
	})
	require.ErrorIs(t, err, broken)
	require.ElementsMatch(t, []string{"x-1", "x-2", "x-3"}, ids)
	require.NoError(t, eachAgent(agent.Options{ID: "x"}, 1, func(o agent.Options) error {
		require.Equal(t, "x", o.ID)
		return nil
	}))
}

func TestBenchFolderStaysAfterFailure(t *testing.T) {
	t.Parallel()
	var told strings.Builder
	a := &app.App{Stdout: &told, Now: func() time.Time { return time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC) }}
	var dir string
	measure := func(outcome error) error {
		return runBench(a, func(b *run) error { dir = b.dir; return outcome })
	}
	require.ErrorContains(t, measure(errors.New("it broke")), "it broke\nLogs are kept in ")
	require.DirExists(t, dir)
	require.NoError(t, os.RemoveAll(dir))
	require.Regexp(t, `^\d+ cores, \d+ GiB, .* 2026-11-21, load before the run [0-9.]+\n$`, told.String())
	require.NoError(t, measure(nil))
	require.NoDirExists(t, dir)
}

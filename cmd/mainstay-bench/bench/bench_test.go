package bench

import (
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/agent"
	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/cli/clitest"
)

func TestMain(m *testing.M) { clitest.Main(m, Command) }

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
		"two storages":    {[]string{"throughput", "--durability", "none", "--memory"}, "--memory or --durability"},
		"unknown fault":   {[]string{"failover", "--only", "kill,flood"}, "--only must name some of kill, freeze"},
		"too few agents":  {[]string{"failover", "--agents", "4"}, "--agents must be 5 to 1000"},
		"away":            {[]string{"failover", "--away", "-1s"}, "--away must be at least 0s"},
		"idle agents":     {[]string{"idle", "--agents", "0"}, "--agents must be 1 to 1000"},
		"idle time":       {[]string{"idle", "--for", "1ms"}, "--for must be at least 1s"},
		"fleet members":   {[]string{"fleet", "--members", "0"}, "--members must be 1 to"},
		"queue depth":     {[]string{"queue", "--depth", "0"}, "--depth must be 10 to 1000000"},
		"large array":     {[]string{"arrays", "--large", "100001"}, "--large must be 1 to 100000"},
		"backlog":         {[]string{"types", "--backlog", "99"}, "--backlog must be 100 to 1000000"},
		"output":          {[]string{"idle", "-o", "xml"}, "--output must be text or json"},
		"unknown command": {[]string{"speed"}, `there is no command "mainstay-bench speed"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := clitest.Run(t.Context(), "", test.args...)
			require.Equal(t, app.ExitUsage, r.Code, r.Stderr)
			require.Contains(t, r.Stderr, test.says)
			require.Empty(t, r.Stdout)
		})
	}
}

// TestBenchCommandsOfTheDocumentExist looks for each command line of docs/BENCHMARKS.md.
func TestBenchCommandsOfTheDocumentExist(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../docs/BENCHMARKS.md")
	require.NoError(t, err)
	lines := regexp.MustCompile(`(?m)^mainstay-bench ([a-z]+)(.*)$`).FindAllStringSubmatch(string(text), -1)
	require.GreaterOrEqual(t, len(lines), 10)
	for _, line := range lines {
		command, _, err := Command(&app.App{}).Find(line[1:2])
		require.NoError(t, err)
		require.NotEmpty(t, command.Example, line[1])
		for _, flag := range regexp.MustCompile(`--([a-z-]+)`).FindAllStringSubmatch(line[2], -1) {
			require.NotNil(t, command.Flag(flag[1]), line[0])
		}
	}
}

func TestBenchStorages(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		p        throughputPlan
		names    []string
		settings []Setting
	}{
		"one":    {throughputPlan{durability: "power"}, []string{"power"}, []Setting{{durability: "power"}}},
		"memory": {throughputPlan{durability: "process", memory: true}, []string{"memory"}, []Setting{{memory: true}}},
		"all": {throughputPlan{durability: "all"}, []string{"power", "process", "none", "memory"},
			[]Setting{{durability: "power"}, {durability: "process"}, {durability: "none"}, {memory: true}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			settings := test.p.settings()
			names := make([]string, len(settings))
			for i := range settings {
				names[i] = settings[i].storage()
			}
			require.Equal(t, test.names, names)
			require.Equal(t, test.settings, settings)
		})
	}
}

func TestBenchSideSumsUp(t *testing.T) {
	t.Parallel()
	side := measured{
		Name:      "x",
		PerSecond: []float64{10, 30, 20},
		latency:   []time.Duration{2 * time.Millisecond, time.Millisecond},
		tasks:     4,
		cpu:       CPU{Server: 8 * time.Millisecond, All: 12 * time.Millisecond},
	}
	summed := side
	summed.Median, summed.Latencies, summed.P50, summed.P99, summed.Max = 20, 2, 1, 2, 2
	summed.ServerCPU, summed.AllCPU = 2, 3
	side.sumUp()
	require.Equal(t, summed, side)
	data, err := json.Marshal(side)
	require.NoError(t, err)
	require.Contains(t, string(data), `"submit_to_begin_p50_ms":1`)
}

func TestEachAgentNumbersThem(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var ids []string
	broken := errors.New("broken")
	err := eachAgent(agent.Options{ID: "x"}, 0, 3, func(o agent.Options) error {
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
	require.NoError(t, eachAgent(agent.Options{ID: "x"}, 0, 1, func(o agent.Options) error {
		require.Equal(t, "x", o.ID)
		return nil
	}))
	ids = nil
	require.NoError(t, eachAgent(agent.Options{ID: "x", Cluster: "c"}, 2, 2, func(o agent.Options) error {
		mu.Lock()
		defer mu.Unlock()
		ids = append(ids, o.Cluster+" "+o.ID)
		return nil
	}))
	require.ElementsMatch(t, []string{"c-1 x-1-1", "c-1 x-1-2", "c-2 x-2-1", "c-2 x-2-2"}, ids)
}

func TestBenchFolderStaysAfterFailure(t *testing.T) {
	t.Parallel()
	var told strings.Builder
	a := &app.App{Stdout: &told}
	machine := Machine{Cores: 2, Memory: 24 << 30, Kernel: "linux 6", Go: "go1.26", Version: "v1", Date: "2026-11-21"}
	var dir string
	measure := func(outcome error) error {
		return runBench(a, programs{}, machine, func(b *run) error { dir = b.dir; return outcome })
	}
	require.ErrorContains(t, measure(errors.New("it broke")), "it broke\nLogs are kept in ")
	require.DirExists(t, dir)
	require.NoError(t, os.RemoveAll(dir))
	require.Equal(t, "2 cores, 24 GiB, linux 6, go1.26, mainstay v1, 2026-11-21, load before the run 0.00\n",
		told.String())
	require.NoError(t, measure(nil))
	require.NoDirExists(t, dir)
}

package bench

import (
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/cli/clitest"
)

func TestMain(m *testing.M) { clitest.Main(m, Command) }

func TestBenchUsage(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args []string
		says string
	}{
		"rounds":  {[]string{"throughput", "--rounds", "0"}, "--rounds must be at least 1"},
		"clients": {[]string{"throughput", "--clients", "0"}, "--clients must be at least 1"},
		"durability": {[]string{"throughput", "--durability", "some"},
			"--durability must be process, power, none or all"},
		"two storages":    {[]string{"throughput", "--durability", "none", "--memory"}, "--memory or --durability"},
		"unknown fault":   {[]string{"failover", "--only", "kill,flood"}, "--only must name some of kill, freeze"},
		"too few agents":  {[]string{"failover", "--agents", "4"}, "--agents must be at least 5"},
		"away":            {[]string{"failover", "--away", "-1s"}, "--away must be at least 0s"},
		"idle agents":     {[]string{"idle", "--agents", "0"}, "--agents must be at least 1"},
		"idle time":       {[]string{"idle", "--for", "-1s"}, "--for must be"},
		"fleet members":   {[]string{"fleet", "--members", "0"}, "--members must be at least 1"},
		"queue depth":     {[]string{"queue", "--depth", "0"}, "--depth must be at least 1"},
		"backlog":         {[]string{"types", "--backlog", "0"}, "--backlog must be at least 1"},
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

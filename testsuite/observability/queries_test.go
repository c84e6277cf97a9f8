package observability

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

const (
	alertsFile = "../../deploy/prometheus/alerts.yaml"
	operations = "../../docs/OPERATIONS.md"
)

// metricName finds what may be the name of a metric in a query: those of Mainstay, of the SDK, of Go and of the
// process.
var metricName = regexp.MustCompile(`\b(?:stella|mainstay|temporal|go|process)_[a-z0-9_]+\b`)

// quoted are label values: names in them are no metrics.
var quoted = regexp.MustCompile(`"[^"]*"`)

// fromElsewhere are metrics that Mainstay does not make, and what makes them. TestSDKMetricsThatAreQueried in
// testsuite/e2e sees that the SDK does.
var fromElsewhere = map[string]bool{
	"go_goroutines": true, "process_resident_memory_bytes": true, "process_cpu_seconds_total": true,
	"temporal_request_latency_seconds": true, "temporal_request_failure_total": true,
	"temporal_workflow_task_schedule_to_start_latency_seconds": true,
	"temporal_workflow_task_execution_failed_total":            true,
	"temporal_activity_schedule_to_start_latency_seconds":      true, "temporal_sticky_cache_size": true,
	"temporal_worker_task_slots_available": true,
}

// alert is a rule of deploy/prometheus.
type alert struct {
	Alert, Expr, For string
	Labels           map[string]string
	Annotations      map[string]string
}

func alerts(t *testing.T) []alert {
	t.Helper()
	text, err := os.ReadFile(alertsFile)
	require.NoError(t, err)
	var file struct {
		Groups []struct {
			Name  string
			Rules []alert
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &file))
	var all []alert
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	require.NotEmpty(t, all)
	return all
}

// dashboard is what is checked of a dashboard.
type dashboard struct {
	UID    string
	Panels []struct {
		ID      int
		Title   string
		GridPos struct{ X, Y, W, H int }
		Targets []struct{ Expr string }
	}
	Templating struct {
		List []struct {
			Name  string
			Query any // of the data source it is a word
		}
	}
}

// dashboards are those of deploy/grafana, by file.
func dashboards(t *testing.T) map[string]dashboard {
	t.Helper()
	files, err := filepath.Glob("../../deploy/grafana/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	all := map[string]dashboard{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var d dashboard
		require.NoError(t, json.Unmarshal(text, &d), file)
		all[filepath.Base(file)] = d
	}
	return all
}

// queries are the expressions of all dashboards, by where they are.
func queries(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for file, d := range dashboards(t) {
		for _, p := range d.Panels {
			for i, target := range p.Targets {
				all[fmt.Sprintf("%s: %s %d", file, p.Title, i)] = strings.ReplaceAll(target.Expr, "$cluster", "c")
			}
		}
		for _, v := range d.Templating.List {
			if query, ok := v.Query.(map[string]any); ok {
				all[file+": variable "+v.Name], _ = query["query"].(string)
			}
		}
		require.Contains(t, all, file+": variable cluster")
	}
	return all
}

func withAlerts(t *testing.T) map[string]string {
	t.Helper()
	all := queries(t)
	for _, a := range alerts(t) {
		all["alert "+a.Alert] = a.Expr
	}
	return all
}

// Every metric that a dashboard or an alert queries is there.
func TestQueriedMetricsExist(t *testing.T) {
	t.Parallel()
	known, labels := map[string]bool{}, map[string]bool{}
	for _, m := range catalogue(t) {
		known[m.Name] = true
		for _, l := range m.Labels {
			labels[l] = true
		}
		if m.Type == dto.MetricType_HISTOGRAM {
			known[m.Name+"_bucket"], known[m.Name+"_count"], known[m.Name+"_sum"] = true, true, true
		}
	}
	for name := range fromElsewhere {
		known[name], known[name+"_bucket"] = true, true
	}
	used := map[string]bool{}
	for where, query := range withAlerts(t) {
		names := metricName.FindAllString(quoted.ReplaceAllString(query, `""`), -1)
		if !strings.Contains(query, `up{job="mainstay"}`) {
			require.NotEmpty(t, names, where)
		}
		for _, name := range names {
			if labels[name] {
				continue
			}
			require.True(t, known[name], "%s queries %s, which nothing tells", where, name)
			used[name] = true
		}
	}
	for _, m := range catalogue(t) {
		if m.Type == dto.MetricType_HISTOGRAM {
			continue
		}
		require.True(t, used[m.Name] || m.Name == "mainstay_cluster_agents_desired",
			"%s is in no dashboard and no alert", m.Name)
	}
}

// Every gateway tells the same of the fleet, so queries join that by max (or min), never by sum alone.
func TestFleetIsNotCountedTwice(t *testing.T) {
	t.Parallel()
	for _, m := range catalogue(t) {
		if m.Role != Gateway || !strings.HasPrefix(m.Name, "stella_") &&
			!strings.HasPrefix(m.Name, "mainstay_cluster_") {
			continue
		}
		joined := regexp.MustCompile(`\b(?:max|min)(?: by \([a-z_, ]*\))? ?\((?:increase\()?` + m.Name + `\b`)
		any := regexp.MustCompile(`\b` + m.Name + `\b`)
		for where, query := range withAlerts(t) {
			if strings.Contains(query, "absent(") || strings.Contains(query, "label_values(") {
				continue
			}
			require.Len(t, joined.FindAllString(query, -1), len(any.FindAllString(query, -1)), "%s: %s", where, query)
		}
	}
}

// Panels lie on Grafana's grid without overlapping, and each has a title and something to show.
func TestDashboardsAreWellFormed(t *testing.T) {
	t.Parallel()
	uids := map[string]bool{}
	for name, board := range dashboards(t) {
		require.False(t, uids[board.UID], "%s has the uid of another", name)
		uids[board.UID] = true
		cells, ids := map[[2]int]string{}, map[int]bool{}
		for _, p := range board.Panels {
			require.NotEmpty(t, p.Title)
			require.NotEmpty(t, p.Targets, p.Title)
			require.False(t, ids[p.ID])
			ids[p.ID] = true
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
					require.Less(t, x, 24, p.Title)
					require.Empty(t, cells[[2]int{x, y}], "%s lies over it", p.Title)
					cells[[2]int{x, y}] = p.Title
				}
			}
		}
	}
}

// Every alert says what is the matter and where its runbook is, and the runbook has a section for it, and for no other.
func TestAlertsHaveRunbooks(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(operations)
	require.NoError(t, err)
	names := map[string]bool{}
	for _, a := range alerts(t) {
		require.False(t, names[a.Alert], "%s twice", a.Alert)
		names[a.Alert] = true
		require.True(t, strings.HasPrefix(a.Alert, "Mainstay"), a.Alert)
		require.Contains(t, []string{"critical", "warning"}, a.Labels["severity"], a.Alert)
		require.NotEmpty(t, a.Annotations["summary"], a.Alert)
		require.NotEmpty(t, a.Annotations["description"], a.Alert)
		require.Equal(t, "docs/OPERATIONS.md#"+strings.ToLower(a.Alert), a.Annotations["runbook_url"], a.Alert)
		require.Contains(t, string(text), "\n### "+a.Alert+"\n")
	}
	for _, section := range strings.Split(string(text), "\n### Mainstay")[1:] {
		name, _, _ := strings.Cut(section, "\n")
		section, _, _ = strings.Cut(section, "\n## ")
		require.Contains(t, section, "**Over when** ", "Mainstay%s: its reader wants to see that it worked", name)
	}
	for _, heading := range regexp.MustCompile(`\n### (Mainstay\w+)\n`).FindAllStringSubmatch(string(text), -1) {
		require.True(t, names[heading[1]], "%s has a runbook and no rule", heading[1])
	}
	for _, name := range []string{"AgentDown", "MultipleAgentsDown", "OrphanedPartitions", "HighFailoverRate",
		"HeartbeatFailures"} {
		require.True(t, names["Mainstay"+name], "the promised alert %s", name)
	}
	// Each alert has a unit test.
	tests, err := os.ReadFile("../../deploy/prometheus/alerts_test.yaml")
	require.NoError(t, err)
	for name := range names {
		require.Contains(t, string(tests), name)
	}
}

// promtool is Prometheus's own checker; Debian has it in the package prometheus.
func promtool(t *testing.T, dir string, args ...string) {
	checker(t, "promtool", "prometheus", dir, args...)
}

// checker runs a program that checks what deploy has, and skips the test where the program is missing.
func checker(t *testing.T, name, debian, dir string, args ...string) string {
	t.Helper()
	program, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not on this machine: apt-get install %s, and what is in deploy is checked with it", name, debian)
	}
	command := exec.CommandContext(t.Context(), program, args...)
	command.Dir = dir
	var stderr strings.Builder
	command.Stderr = &stderr
	out, err := command.Output()
	require.NoError(t, err, "%s%s", out, &stderr)
	return string(out)
}

// Every severity of an alert reaches somebody: critical ones also wake a person.
func TestAlertsAreDelivered(t *testing.T) {
	t.Parallel()
	dir := filepath.Dir(alertsFile)
	amtool := func(args ...string) string {
		return checker(t, "amtool", "prometheus-alertmanager", dir, args...)
	}
	amtool("check-config", "alertmanager.yaml")
	rules, err := os.ReadFile(alertsFile)
	require.NoError(t, err)
	receivers := map[string]string{"critical": "pagerduty,slack", "warning": "slack"}
	for _, found := range regexp.MustCompile(`severity: (\w+)`).FindAllStringSubmatch(string(rules), -1) {
		require.Contains(t, receivers, found[1], "the severity of an alert that nothing is said of here")
	}
	for severity, want := range receivers {
		got := amtool("config", "routes", "test", "--config.file", "alertmanager.yaml", "severity="+severity)
		require.Equal(t, want, strings.TrimSpace(got), severity)
	}
}

func TestAlertsWithPromtool(t *testing.T) {
	t.Parallel()
	dir := filepath.Dir(alertsFile)
	promtool(t, dir, "check", "rules", filepath.Base(alertsFile))
	promtool(t, dir, "test", "rules", "alerts_test.yaml")
}

// The dashboards' queries are checked as the expressions of rules.
func TestDashboardQueriesWithPromtool(t *testing.T) {
	t.Parallel()
	var rules []map[string]string
	for where, query := range queries(t) {
		if !strings.Contains(query, "label_values(") {
			rules = append(rules, map[string]string{"record": fmt.Sprintf("query:%d", len(rules)), "expr": query +
				" # " + where})
		}
	}
	slices.SortFunc(rules, func(a, b map[string]string) int { return strings.Compare(a["expr"], b["expr"]) })
	text, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "queries", "rules": rules}}})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "queries.yaml")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	promtool(t, ".", "check", "rules", "--lint=none", file)
}

package observability

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the tables of docs/OPERATIONS.md")

const docs = "../../docs/OPERATIONS.md"

func catalogue(t *testing.T) []Metric {
	t.Helper()
	all, err := Catalogue()
	require.NoError(t, err)
	return all
}

// The documents' metrics have their names and labels, to the letter. Those of the failure detector's document have the
// prefix stella_, topics are clusters here, and what names an agent in a value names it in a label.
func TestMetricsOfTheDocuments(t *testing.T) {
	t.Parallel()
	have := map[string]string{}
	for _, m := range catalogue(t) {
		have[m.Name] = strings.Join(m.Labels, ",")
	}
	for name, labels := range map[string]string{
		"stella_agent_cluster_members":                "cluster_id,status",
		"stella_agent_cluster_leader":                 "cluster_id,agent_id",
		"stella_agent_cluster_health":                 "cluster_id",
		"stella_agent_failovers_total":                "cluster_id,status",
		"stella_agent_failover_duration_seconds":      "cluster_id",
		"stella_agent_tasks_transferred_total":        "cluster_id",
		"stella_agent_queue_depth":                    "cluster_id,priority",
		"stella_agent_queue_latency_seconds":          "cluster_id",
		"stella_agent_dead_letter_queue_depth":        "cluster_id",
		"stella_agent_healing_actions_total":          "action_type,status",
		"stella_agent_healing_cycle_duration_seconds": "",
		"stella_agent_health_score":                   "agent_id",
		"stella_agent_heartbeat_age_seconds":          "agent_id",
		"stella_agent_task_completion_rate":           "agent_id",

		"stella_agent_up":                        "agent_id",
		"stella_agent_lease_count":               "agent_id",
		"stella_agent_heartbeat_success_total":   "agent_id",
		"stella_agent_heartbeat_failure_total":   "agent_id",
		"stella_agent_partition_leader_agent_id": "cluster_id,partition,agent_id",
		"stella_agent_partition_lease_epoch":     "cluster_id,partition",
		"stella_agent_partition_failover_count":  "cluster_id,partition",
		"stella_agent_live_agents":               "",
		"stella_agent_total_partitions":          "",
		"stella_agent_orphaned_partitions":       "",
	} {
		got, found := have[name]
		require.True(t, found, name)
		require.Equal(t, labels, got, name)
	}
	for name := range have {
		require.True(t, strings.HasPrefix(name, "stella_agent_") || strings.HasPrefix(name, "mainstay_"), name)
	}
}

// No metric has labels without a bound: tasks have no place in them, and agents only where the documents name them.
func TestLabelsAreBounded(t *testing.T) {
	t.Parallel()
	for _, m := range catalogue(t) {
		for _, label := range m.Labels {
			require.NotContains(t, []string{"task", "task_id", "instance_id", "tenant", "workflow_id", "run_id"}, label,
				m.Name)
			if label == "agent_id" {
				require.True(t, strings.HasPrefix(m.Name, "stella_agent_"), m.Name)
			}
		}
	}
}

// lintExceptions are names of the documents that the linter does not like, and why they stay.
var lintExceptions = map[string]string{
	"stella_agent_partition_failover_count": "a promised name of a counter, partition_failover_count",
	"stella_agent_lease_count":              "a promised name of a gauge, agent_lease_count",
}

func TestMetricsPassTheLinter(t *testing.T) {
	t.Parallel()
	var families []*dto.MetricFamily
	for _, m := range catalogue(t) {
		sample := &dto.Metric{}
		for _, l := range m.Labels {
			sample.Label = append(sample.Label, &dto.LabelPair{Name: &l, Value: new(string)})
		}
		families = append(families, &dto.MetricFamily{Name: &m.Name, Help: &m.Help, Type: &m.Type,
			Metric: []*dto.Metric{sample}})
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	require.NoError(t, err)
	excused := map[string]bool{}
	for _, p := range problems {
		require.Contains(t, lintExceptions, p.Metric, p.Text)
		excused[p.Metric] = true
	}
	require.Len(t, excused, len(lintExceptions), "an exception that is not needed is to go")
}

// table is the documentation of a role's metrics, between markers.
func table(all []Metric, role string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "<!-- metrics of %s: written by go test ./testsuite/observability -update -->\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n", role)
	for _, m := range all {
		if m.Role == role {
			labels := "—"
			if len(m.Labels) > 0 {
				labels = "`" + strings.Join(m.Labels, "`, `") + "`"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.Name, strings.ToLower(m.Type.String()), labels, m.Help)
		}
	}
	fmt.Fprintf(&b, "\n<!-- end of %s -->", role)
	return b.String()
}

// docs/OPERATIONS.md lists exactly what there is.
func TestMetricsAreDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(docs)
	require.NoError(t, err)
	all := catalogue(t)
	page := string(text)
	for _, role := range []string{Gateway, Hub, Worker, Every} {
		begin := strings.Index(page, "<!-- metrics of "+role+":")
		end := strings.Index(page, "<!-- end of "+role+" -->")
		require.True(t, begin >= 0 && end > begin, "the table of %s is missing", role)
		end += len("<!-- end of " + role + " -->")
		if *update {
			page = page[:begin] + table(all, role) + page[end:]
			continue
		}
		require.Equal(t, table(all, role), page[begin:end], "run go test ./testsuite/observability -update")
	}
	if *update {
		require.NoError(t, os.WriteFile(docs, []byte(page), 0o600))
	}
}

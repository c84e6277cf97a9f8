package browser

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What a view reads first is asked for before the page's script is there, and not again when it is.
func TestFirstReadsAreEarly(t *testing.T) {
	t.Parallel()
	f := newFleet(t, nil, "a")
	task := f.submit("early", "true", nil)
	f.becomes(task, "completed")
	for _, view := range []string{
		"", "clusters", "agents?cluster=" + f.cluster, "tasks?cluster=" + f.cluster, "queue?cluster=" + f.cluster,
		"failovers", "drains", "healing", "scaling?cluster=" + f.cluster, "dead-letters", "reviews",
		"clusters/" + f.cluster, "agents/" + f.name("a"), "tasks/" + task,
	} {
		t.Run(view, func(t *testing.T) {
			t.Parallel()
			p := openTab(t, f.URL, "#/"+view)
			p.until("it is drawn", `performance.getEntriesByName("drawn").length > 0`)
			require.Equal(t, "early, once", p.text(`(() => {
				const [script, drawn] = ["script", "drawn"].map((name) => performance.getEntriesByName(name)[0].startTime);
				const reads = performance.getEntriesByType("resource").filter((r) => r.name.includes("/api/v1/agents") && r.startTime < drawn);
				const names = reads.map((r) => r.name), twice = names.filter((name, i) => names.indexOf(name) !== i);
				return twice.length ? "twice: " + twice : !reads.length || reads[0].startTime > script ? "late" : "early, once";
			})()`))
		})
	}
}

package devserver

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The queries are those that lists and the overview ask, as Temporal puts them to SQLite. MainstayStatus and the other
// attributes are in columns that are chosen at random when the namespace is made; here it is Keyword03.
func TestListsAreReadByTheirIndexes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, err := openSQLite(Options{DataDir: dir, Durability: ProcessCrash})
	require.NoError(t, err)
	_, err = openSQLite(Options{DataDir: dir, Durability: ProcessCrash})
	require.NoError(t, err, "again, with the indexes there")
	db, err := sql.Open("sqlite", filepath.Join(dir, databaseFile)) // the driver is Temporal's
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	const (
		from   = "SELECT run_id FROM executions_visibility WHERE namespace_id = 'n' AND "
		order  = " ORDER BY COALESCE(close_time, '9999-12-31 23:59:59+00:00') DESC, start_time DESC, run_id LIMIT 100"
		normal = " AND TemporalNamespaceDivision IS NULL"
	)
	for name, test := range map[string]struct{ query, index string }{
		"open clusters": {from + "workflow_type_name = 'Cluster' AND status = 1" + normal + order,
			"mainstay_by_type_and_status"},
		"failovers":           {from + "workflow_type_name = 'Failover'" + normal + order, "mainstay_by_type"},
		"open tasks, counted": {"SELECT COUNT(*) FROM executions_visibility WHERE namespace_id = 'n' AND workflow_type_name = 'Task' AND status = 1" + normal, "mainstay_by_type_and_status"},
		"tasks in review": {from +
			"workflow_type_name = 'Task' AND status = 1 AND Keyword03 BETWEEN 'review' AND 'review'" + normal + order,
			"by_keyword_03"},
		"pinned tasks": {from + "workflow_type_name = 'Task' AND status = 1 AND Keyword05 > ''" + normal + order,
			"by_keyword_05"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var id, parent, unused int
			var plan string
			require.NoError(t, db.QueryRow("EXPLAIN QUERY PLAN "+test.query).Scan(&id, &parent, &unused, &plan))
			require.Contains(t, plan, test.index+" (")
		})
	}
}

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
			"mainstay_by_type_and_keyword_03"},
		"tasks marked of late": {from + "workflow_type_name = 'Task' AND Datetime01 >= '2026-11-25 10:00:00+00:00'" + normal + order,
			"mainstay_by_datetime_01"},
		"pinned tasks": {from + "workflow_type_name = 'Task' AND status = 1 AND Keyword05 > ''" + normal + order,
			"mainstay_by_type_and_keyword_05"},
		"tasks of a tenant": {from + "workflow_type_name = 'Task' AND Keyword05 = 'acme'" + normal + order,
			"mainstay_by_type_and_keyword_05"},
		"open tasks of a cluster": {from +
			"workflow_type_name = 'Task' AND status = 1 AND Keyword05 = 'main'" + normal + order,
			"mainstay_by_type_and_status"},
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

// Rows come, change and go as Temporal writes them; the words of the row's lists are found as they are now.
func TestWordsAreFoundAsTheRowsAre(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, err := openSQLite(Options{DataDir: dir, Durability: ProcessCrash})
	require.NoError(t, err)
	db, err := sql.Open("sqlite", filepath.Join(dir, databaseFile))
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	write := func(run, attributes string) {
		_, err := db.Exec(`INSERT INTO executions_visibility
			(namespace_id, run_id, start_time, execution_time, workflow_id, workflow_type_name, status, encoding, search_attributes)
			VALUES ('n', ?, '2026-01-01', '2026-01-01', 'w', 'Task', 1, '', ?)
			ON CONFLICT (namespace_id, run_id) DO UPDATE SET search_attributes = excluded.search_attributes`, run, attributes)
		require.NoError(t, err)
	}
	found := func(table, word string) (runs []string) {
		rows, err := db.Query(`SELECT run_id FROM executions_visibility WHERE rowid IN
			(SELECT rowid FROM executions_visibility_fts_`+table+` WHERE executions_visibility_fts_`+table+` MATCH ?)
			ORDER BY run_id`, `"`+word+`"`)
		require.NoError(t, err)
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var run string
			require.NoError(t, rows.Scan(&run))
			runs = append(runs, run)
		}
		require.NoError(t, rows.Err())
		return runs
	}
	write("one", `{"KeywordList02": "red♡blue", "Text01": "plain words"}`)
	write("two", `{}`)
	require.Equal(t, []string{"one"}, found("keyword_list", "red"))
	require.Equal(t, []string{"one"}, found("text", "words"))
	write("two", `{"KeywordList02": "red"}`)
	require.Equal(t, []string{"one", "two"}, found("keyword_list", "red"), "a list that was added")
	write("one", `{"KeywordList02": "blue", "Text01": "plain words"}`)
	require.Equal(t, []string{"two"}, found("keyword_list", "red"), "a list that has changed")
	require.Equal(t, []string{"one"}, found("keyword_list", "blue"))
	require.Equal(t, []string{"one"}, found("text", "plain"), "a text beside it that has not")
	write("one", `{}`)
	require.Empty(t, found("keyword_list", "blue"), "a list that was removed")
	_, err = db.Exec("DELETE FROM executions_visibility WHERE run_id = 'two'")
	require.NoError(t, err)
	write("three", `{"KeywordList01": "green"}`) // it may get the deleted row's number
	require.Empty(t, found("keyword_list", "red"))
	require.Equal(t, []string{"three"}, found("keyword_list", "green"))
}

package devserver

import (
	"fmt"
	"strings"

	"go.temporal.io/server/common/persistence/sql/sqlplugin"
)

// Temporal's schema for SQLite gives the table of lists about 70 indexes, each with the closing time, and two full-text
// tables. Every write of a workflow's row writes them all and compiles a statement for all. With what follows, a row
// writes the indexes that lists use, those of attributes only where the workflow has the attribute, and the full-text
// tables only where a text or a list of words has changed. Any query still gives the same rows.

const (
	visibilityTable = "executions_visibility"
	listOrder       = "(COALESCE(close_time, '9999-12-31 23:59:59+00:00')) DESC, start_time DESC, run_id"
)

// indexes join those of Temporal that stay. SQLite keeps no statistics here and takes one index for a query: without
// these it reads all open workflows, often thousands of tasks, to find a few clusters. PostgreSQL knows which of
// Temporal's own indexes is the better one.
var indexes = []string{
	"mainstay_by_type ON " + visibilityTable + " (namespace_id, workflow_type_name, TemporalNamespaceDivision, " +
		listOrder + ")",
	"mainstay_by_type_and_status ON " + visibilityTable +
		" (namespace_id, workflow_type_name, status, TemporalNamespaceDivision, " + listOrder + ")",
}

// unused are indexes of Temporal's schema, without "by_", that no list of ours and of Temporal's Web UI needs.
var unused = []string{
	"execution_time", "workflow_type", "history_length", "history_size_bytes", "execution_duration",
	"state_transition_count", "task_queue", "parent_run_id", "root_run_id", "batcher_user",
	"temporal_scheduled_start_time", "temporal_scheduled_by_id", "temporal_schedule_paused",
	"temporal_namespace_division", "temporal_pause_info", "temporal_worker_deployment_version",
	"temporal_workflow_versioning_behavior", "temporal_worker_deployment",
	"bool_01", "bool_02", "bool_03", "double_01", "double_02", "double_03", "int_01", "int_02", "int_03",
	"temporal_bool_01", "temporal_bool_02", "temporal_datetime_01", "temporal_datetime_02",
	"temporal_double_01", "temporal_double_02", "temporal_int_01", "temporal_int_02",
	"temporal_keyword_01", "temporal_keyword_02", "temporal_keyword_03", "temporal_keyword_04",
	"temporal_low_cardinality_keyword_01",
}

// fullText are the columns of each full-text table.
var fullText = map[string][]string{
	"text": {"Text01", "Text02", "Text03"},
	"keyword_list": {"TemporalChangeVersion", "BinaryChecksums", "BuildIds", "TemporalPauseInfo",
		"TemporalReportedProblems", "TemporalUsedWorkerDeploymentVersions", "KeywordList01", "KeywordList02",
		"KeywordList03", "TemporalKeywordList01", "TemporalKeywordList02"},
}

// visibilityStatements change a database with Temporal's schema so. They may be executed again.
func visibilityStatements() []string {
	var statements []string
	for _, name := range unused {
		statements = append(statements, "DROP INDEX IF EXISTS by_"+name)
	}
	for _, index := range indexes {
		statements = append(statements, "CREATE INDEX IF NOT EXISTS "+index)
	}
	for n := 1; n <= 10; n++ {
		statements = append(statements, sparseIndex("keyword", "type_and_keyword", "Keyword", ", workflow_type_name",
			n)...)
	}
	for n := 1; n <= 3; n++ {
		statements = append(statements, sparseIndex("datetime", "datetime", "Datetime", "", n)...)
	}
	for _, event := range []string{"ai", "ad", "au"} {
		statements = append(statements, "DROP TRIGGER IF EXISTS "+visibilityTable+"_"+event)
	}
	for table, columns := range fullText {
		statements = append(statements, fullTextTriggers(visibilityTable+"_fts_"+table, columns)...)
	}
	return statements
}

// sparseIndex replaces Temporal's index of an attribute's column by one of only the rows with a value. With the
// workflow's type in it, SQLite uses it for rare values, such as a small tenant, instead of the index of all tasks.
func sparseIndex(theirs, ours, column, more string, n int) []string {
	column = fmt.Sprintf("%s%02d", column, n)
	return []string{
		fmt.Sprintf("DROP INDEX IF EXISTS by_%s_%02d", theirs, n),
		fmt.Sprintf("CREATE INDEX IF NOT EXISTS mainstay_by_%s_%02d ON %s (namespace_id, %s%s, %s) WHERE %s IS NOT NULL",
			ours, n, visibilityTable, column, more, listOrder, column),
	}
}

// fullTextTriggers keep a full-text table as the rows are. A row without a value in its columns is not in it.
func fullTextTriggers(table string, columns []string) []string {
	of := func(row, between, after string) string {
		terms := make([]string, len(columns))
		for i, column := range columns {
			terms[i] = row + column + after
		}
		return strings.Join(terms, between)
	}
	changed := make([]string, len(columns))
	for i, column := range columns {
		changed[i] = "OLD." + column + " IS NOT NEW." + column
	}
	anyOf := func(row string) string { return of(row, " OR ", " IS NOT NULL") }
	names := of("", ", ", "")
	insert := fmt.Sprintf("INSERT INTO %s (rowid, %s) SELECT NEW.rowid, %s WHERE %s;", table, names,
		of("NEW.", ", ", ""), anyOf("NEW."))
	remove := fmt.Sprintf("INSERT INTO %s (%s, rowid, %s) SELECT 'delete', OLD.rowid, %s WHERE %s;", table, table, names,
		of("OLD.", ", ", ""), anyOf("OLD."))
	trigger := func(event, when, body string) string {
		return fmt.Sprintf("CREATE TRIGGER IF NOT EXISTS %s_%s AFTER %s ON %s WHEN %s BEGIN %s END", table,
			strings.ToLower(event), event, visibilityTable, when, body)
	}
	return []string{
		trigger("INSERT", anyOf("NEW."), insert),
		trigger("DELETE", anyOf("OLD."), remove),
		trigger("UPDATE", strings.Join(changed, " OR "), remove+" "+insert),
	}
}

// shapeVisibility changes a SQLite database that has Temporal's schema.
func shapeVisibility(db sqlplugin.AdminDB) error {
	for _, statement := range visibilityStatements() {
		if err := db.Exec(statement); err != nil {
			return fmt.Errorf("make the indexes of lists (%.60s…): %w", statement, err)
		}
	}
	return nil
}

package devserver

import (
	"fmt"

	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/metrics"
	"go.temporal.io/server/common/persistence/sql"
	"go.temporal.io/server/common/persistence/sql/sqlplugin"
	"go.temporal.io/server/common/resolver"
)

// indexes are beside those that Temporal's schema has. SQLite keeps no statistics here and takes one index for a query:
// without these it goes through all open workflows, of which there may be thousands of tasks, to find a few clusters.
// PostgreSQL knows which of Temporal's own indexes is the better one.
var indexes = []string{
	`CREATE INDEX IF NOT EXISTS mainstay_by_type ON executions_visibility
		(namespace_id, workflow_type_name, TemporalNamespaceDivision, (COALESCE(close_time, '9999-12-31 23:59:59+00:00')) DESC, start_time DESC, run_id)`,
	`CREATE INDEX IF NOT EXISTS mainstay_by_type_and_status ON executions_visibility
		(namespace_id, workflow_type_name, status, TemporalNamespaceDivision, (COALESCE(close_time, '9999-12-31 23:59:59+00:00')) DESC, start_time DESC, run_id)`,
}

// addIndexes makes our indexes in a SQLite database that has Temporal's schema.
func addIndexes(conf *config.SQL) error {
	db, err := sql.NewSQLAdminDB(sqlplugin.DbKindUnknown, conf, resolver.NewNoopResolver(), log.NewNoopLogger(),
		metrics.NoopMetricsHandler)
	if err != nil {
		return fmt.Errorf("open the database: %w", err)
	}
	defer func() { _ = db.Close() }()
	for _, index := range indexes {
		if err := db.Exec(index); err != nil {
			return fmt.Errorf("make an index: %w", err)
		}
	}
	return nil
}

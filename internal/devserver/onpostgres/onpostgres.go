// Package onpostgres lets the embedded Temporal keep its data in PostgreSQL. It is for tests of installations as they
// run in production: an installation of its own runs Temporal's own server, with Temporal's own tool for schema
// upgrades.
package onpostgres

import (
	"fmt"
	"io"
	"io/fs"
	"strings"

	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/metrics"
	"go.temporal.io/server/common/persistence"
	"go.temporal.io/server/common/persistence/sql"
	"go.temporal.io/server/common/persistence/sql/sqlplugin"
	"go.temporal.io/server/common/persistence/sql/sqlplugin/postgresql"
	"go.temporal.io/server/common/resolver"
	"go.temporal.io/server/schema"
	v12 "go.temporal.io/server/schema/postgresql/v12"

	"mainstay.dev/mainstay/internal/devserver"
)

// connections bounds the open connections to each of the two databases.
const connections = 20

// Open makes Temporal's two databases with their schemas on PostgreSQL, for a user who may make them and needs no
// password. address is host:port, or several separated by commas: Temporal uses the one that can be written to.
func Open(address, user string) (*devserver.Store, error) {
	store := &devserver.Store{Shards: 4}
	for _, database := range []struct {
		name, schema, version string
		into                  **config.SQL
	}{
		{"temporal", "postgresql/v12/temporal", v12.Version, &store.Main},
		{"temporal_visibility", "postgresql/v12/visibility", v12.VisibilityVersion, &store.Visibility},
	} {
		conf := &config.SQL{
			PluginName: postgresql.PluginNamePGX, ConnectAddr: address, ConnectProtocol: "tcp", User: user,
			MaxConns:          connections,
			MaxIdleConns:      connections,
			ConnectAttributes: map[string]string{"sslmode": "disable", "target_session_attrs": "read-write"},
		}
		if err := create(*conf, database.name); err != nil {
			return nil, fmt.Errorf("make the database %s: %w", database.name, err)
		}
		conf.DatabaseName = database.name
		if err := setup(conf, database.schema, database.version); err != nil {
			return nil, fmt.Errorf("make the schema of %s: %w", database.name, err)
		}
		*database.into = conf
	}
	return store, nil
}

func create(conf config.SQL, name string) error {
	db, err := admin(&conf)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	return db.CreateDatabase(name)
}

// setup runs the schema's statements in an empty database and notes its version, as the server asks for it.
func setup(conf *config.SQL, path, version string) error {
	db, err := admin(conf)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	text, err := fs.ReadFile(schema.Assets(), path+"/schema.sql")
	if err != nil {
		return err
	}
	statements, err := persistence.LoadAndSplitQueryFromReaders([]io.Reader{strings.NewReader(string(text))})
	if err != nil {
		return err
	}
	if err := db.CreateSchemaVersionTables(); err != nil {
		return err
	}
	for _, statement := range statements {
		if err := db.Exec(statement); err != nil {
			return err
		}
	}
	return db.UpdateSchemaVersion(conf.DatabaseName, version, version)
}

func admin(conf *config.SQL) (sqlplugin.AdminDB, error) {
	return sql.NewSQLAdminDB(sqlplugin.DbKindUnknown, conf, resolver.NewNoopResolver(), log.NewNoopLogger(),
		metrics.NoopMetricsHandler)
}

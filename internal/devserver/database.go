package devserver

import (
	"context"
	stdsql "database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"reflect"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/metrics"
	"go.temporal.io/server/common/persistence/sql"
	"go.temporal.io/server/common/persistence/sql/sqlplugin"
	sqliteplugin "go.temporal.io/server/common/persistence/sql/sqlplugin/sqlite"
	"go.temporal.io/server/common/resolver"
	"go.temporal.io/server/schema/sqlite"
	"google.golang.org/protobuf/types/known/durationpb"

	"mainstay.dev/mainstay/internal/contract"
)

// Durability says what an acknowledged write survives.
type Durability string

// The levels. docs/BENCHMARKS.md has what each costs.
const (
	// the death of the process, SIGKILL included; not a power loss (WAL, synchronous=NORMAL)
	ProcessCrash Durability = "process"
	PowerLoss    Durability = "power" // a power loss too (WAL, synchronous=FULL)
	NoDurability Durability = "none"  // a clean stop only (WAL, synchronous=OFF)
)

// Validate checks the level.
func (d Durability) Validate() error {
	if _, known := synchronous[d]; !known {
		return fmt.Errorf("durability must be process, power or none")
	}
	return nil
}

// synchronous is the SQLite pragma of each level.
var synchronous = map[Durability]string{ProcessCrash: "1", PowerLoss: "2", NoDurability: "0"}

const databaseFile = "temporal.db"

// Store says where Temporal keeps its data.
type Store struct {
	// Main has histories, queues and namespaces, and Visibility the data of lists. They may be one database.
	Main, Visibility *config.SQL
	// Shards is how many parts the histories are in. It is fixed when the databases are made.
	Shards int32
}

// openStore opens the databases that the options name, and makes the namespace with our search attributes.
func openStore(o Options) (*Store, error) {
	store := o.Store
	if store == nil {
		database, err := openSQLite(o)
		if err != nil {
			return nil, err
		}
		store = &Store{Main: database, Visibility: database, Shards: 1}
	}
	namespace, err := sqlite.NewNamespaceConfig(clusterName, o.Namespace, false, contract.SearchAttributes())
	if err != nil {
		return nil, fmt.Errorf("describe namespace %s: %w", o.Namespace, err)
	}
	namespace.Detail.Config.Retention = durationpb.New(o.Retention)
	if err := sqlite.CreateNamespaces(store.Main, namespace); err != nil {
		return nil, fmt.Errorf("make namespace %s: %w", o.Namespace, err)
	}
	return store, nil
}

// openSQLite makes the schema of a new database, and gives any the indexes that we want.
func openSQLite(o Options) (*config.SQL, error) {
	conf := &config.SQL{PluginName: sqliteplugin.PluginName}
	if o.DataDir == "" {
		conf.DatabaseName = "mainstay-" + uuid.NewString()
		conf.ConnectAttributes = map[string]string{"mode": "memory", "cache": "shared"}
	} else {
		conf.DatabaseName = filepath.Join(o.DataDir, databaseFile)
		conf.ConnectAttributes = map[string]string{"mode": "rwc", "journal_mode": "WAL",
			"synchronous": synchronous[o.Durability], "busy_timeout": "10000"}
		if err := setupSchema(*conf); err != nil {
			return nil, err
		}
		if err := keepFromOthers(conf.DatabaseName); err != nil {
			return nil, err
		}
	}
	if o.StockDatabase {
		return conf, nil
	}
	return conf, prepare(conf)
}

// prepare changes a SQLite database that has Temporal's schema, and the handle that Temporal uses it with.
func prepare(conf *config.SQL) error {
	db, err := sql.NewSQLAdminDB(sqlplugin.DbKindUnknown, conf, resolver.NewNoopResolver(), log.NewNoopLogger(),
		metrics.NoopMetricsHandler)
	if err != nil {
		return fmt.Errorf("open the database: %w", err)
	}
	defer func() { _ = db.Close() }()
	if err := shapeVisibility(db); err != nil {
		return err
	}
	if err := keepStatements(db, dataSource(conf)); err != nil {
		return fmt.Errorf("keep the database's statements: %w", err)
	}
	return nil
}

// dataSource names a database as Temporal names it to the driver.
func dataSource(conf *config.SQL) string {
	values := url.Values{"_time_format": {"sqlite"}}
	for name, value := range conf.ConnectAttributes {
		if name == "mode" || name == "cache" {
			values.Set(name, value)
		} else {
			values.Add("_pragma", name+"="+value)
		}
	}
	return "file:" + conf.DatabaseName + "?" + values.Encode()
}

// setupSchema makes the database file if it is not there. It is made beside its place and renamed, so that a crash in
// between leaves no half-made schema.
func setupSchema(conf config.SQL) error {
	final := conf.DatabaseName
	if _, err := os.Stat(final); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	conf.DatabaseName = final + ".new"
	conf.ConnectAttributes = map[string]string{"mode": "rwc"}
	if err := os.Remove(conf.DatabaseName); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove a half-made database: %w", err)
	}
	file, err := os.OpenFile(conf.DatabaseName, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("make the database: %w", err)
	}
	_ = file.Close()
	if err := sqlite.SetupSchema(&conf); err != nil {
		return fmt.Errorf("make the database schema: %w", err)
	}
	if err := os.Rename(conf.DatabaseName, final); err != nil {
		return fmt.Errorf("put the new database in place: %w", err)
	}
	return nil
}

// keepFromOthers lets only the owner read the files of a database, which has payloads and results. SQLite gives its
// further files the mode of the first.
func keepFromOthers(database string) error {
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Chmod(database+suffix, 0o600); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("keep the database from other users: %w", err)
		}
	}
	return nil
}

// keepStatements gives Temporal's database connections that keep statements compiled: Temporal compiles each statement
// anew every time, which takes a sixth of its processor time. The plugin cannot be given another handle. So its private
// field db is read by reflection, and the pool inside that handle (sqlx.DB.DB, which is public) is replaced.
func keepStatements(db sqlplugin.AdminDB, dataSource string) error {
	field := reflect.ValueOf(db).Elem().FieldByName("db")
	if !field.IsValid() || field.Type() != reflect.TypeFor[*sqlx.DB]() {
		return errors.New("this release of Temporal keeps its SQLite handle elsewhere: change keepStatements")
	}
	handle := (*sqlx.DB)(field.UnsafePointer())
	if _, kept := handle.Driver().(keeper); kept {
		return nil // the process has opened this database before
	}
	before := handle.DB
	kept := stdsql.OpenDB(keeperOf{keeper{before.Driver()}, dataSource})
	kept.SetMaxOpenConns(1) // as Temporal does: SQLite has one writer
	kept.SetMaxIdleConns(1)
	if err := kept.Ping(); err != nil { // before the other closes: a database in memory ends with its last connection
		return err
	}
	handle.DB = kept
	return before.Close()
}

type (
	// keeper opens connections that keep their statements.
	keeper struct{ driver.Driver }
	// keeperOf opens them to one database.
	keeperOf struct {
		keeper
		dataSource string
	}
)

func (k keeperOf) Driver() driver.Driver { return k.keeper }

func (k keeperOf) Connect(context.Context) (driver.Conn, error) { return k.Open(k.dataSource) }

func (k keeper) Open(dataSource string) (driver.Conn, error) {
	conn, err := k.Driver.Open(dataSource)
	if err != nil {
		return nil, err
	}
	return &keepingConn{sqliteConn: conn.(sqliteConn), idle: map[string]sqliteStmt{}}, nil
}

type (
	// sqliteConn is what database/sql uses of the driver's connection. Without the ways to execute a text directly, it
	// prepares every statement.
	sqliteConn interface {
		driver.Conn
		driver.ConnPrepareContext
		driver.ConnBeginTx
		driver.SessionResetter
		driver.Validator
	}
	sqliteStmt interface {
		driver.Stmt
		driver.StmtExecContext
		driver.StmtQueryContext
	}
)

// statementsKept bounds the statements of a connection. Temporal has about 150, and lists add some.
const statementsKept = 400

// keepingConn is used by one goroutine at a time, as every connection is.
type keepingConn struct {
	sqliteConn
	idle map[string]sqliteStmt // by their text; only unused ones
}

func (c *keepingConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	stmt := c.idle[query]
	if stmt == nil {
		prepared, err := c.sqliteConn.PrepareContext(ctx, query)
		if err != nil {
			return nil, err
		}
		stmt = prepared.(sqliteStmt)
	}
	delete(c.idle, query)
	return &keptStmt{sqliteStmt: stmt, conn: c, query: query}, nil
}

func (c *keepingConn) Close() error {
	var errs []error
	for _, stmt := range c.idle {
		errs = append(errs, stmt.Close())
	}
	clear(c.idle)
	return errors.Join(append(errs, c.sqliteConn.Close())...)
}

// keptStmt gives its statement back when it is closed.
type keptStmt struct {
	sqliteStmt
	conn  *keepingConn
	query string
}

func (s *keptStmt) Close() error {
	if s.conn.idle[s.query] != nil {
		return s.sqliteStmt.Close() // it was used twice at a time
	}
	s.conn.idle[s.query] = s.sqliteStmt
	if len(s.conn.idle) <= statementsKept {
		return nil
	}
	for query, stmt := range s.conn.idle { // any one
		delete(s.conn.idle, query)
		return stmt.Close()
	}
	return nil
}

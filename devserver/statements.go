package devserver

import (
	"context"
	stdsql "database/sql"
	"database/sql/driver"
	"errors"
	"reflect"

	"github.com/jmoiron/sqlx"
	"go.temporal.io/server/common/persistence/sql/sqlplugin"
)

// Temporal compiles each SQL statement anew every time, a sixth of its processor time. keepStatements gives its
// database connections that keep statements compiled.

// keepStatements makes the database handle that all of Temporal's services share use such connections. The plugin has
// no way to give it another handle, so its field is read; the handle's own field is public.
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
	idle map[string]sqliteStmt // by their text, those that nobody uses now
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

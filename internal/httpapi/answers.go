package httpapi

import (
	"context"
	"net/http"

	"github.com/gin-gonic/gin"
)

type reserveKey struct{}

// WithReserve carries how a request reserves the memory that its answer takes; see Reserve.
func WithReserve(ctx context.Context, reserve func(bytes int64) error) context.Context {
	return context.WithValue(ctx, reserveKey{}, reserve)
}

// Reserve counts the memory for reading and writing a request's answer, until the answer is written. Call it before
// reading much. Its error is the problem to answer with if too much is under way already.
func Reserve(ctx context.Context, bytes int64) error {
	if reserve, ok := ctx.Value(reserveKey{}).(func(int64) error); ok {
		return reserve(bytes)
	}
	return nil
}

type turnKey struct{}

// WithTurn carries how a request takes its turn to read a list; see Turn.
func WithTurn(ctx context.Context, take func(context.Context) (done func(), err error)) context.Context {
	return context.WithValue(ctx, turnKey{}, take)
}

// Turn waits until it is the client's turn to have a list read, which may keep the store busy, and so others waiting.
// Call done when it is read. The error is the problem to answer with where others of the client keep it from its turn.
func Turn(ctx context.Context) (done func(), err error) {
	if take, ok := ctx.Value(turnKey{}).(func(context.Context) (func(), error)); ok {
		return take(ctx)
	}
	return func() {}, nil
}

// largeAnswer is the size in bytes from which an answer counts: more than a connection takes at once.
const largeAnswer = 64 << 10

// countAnswer has the large answers to requests that change nothing counted: one whose client does not read stays in
// memory. One that is too much is not begun.
func countAnswer(c *gin.Context) {
	if c.Request.Method == http.MethodGet {
		c.Writer = &countedWriter{ResponseWriter: c.Writer, c: c}
	}
}

type countedWriter struct {
	gin.ResponseWriter
	c       *gin.Context
	refused bool
}

// Unwrap lets http.ResponseController set deadlines.
func (w *countedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write implements http.ResponseWriter.
func (w *countedWriter) Write(p []byte) (int, error) {
	if w.refused {
		return len(p), nil
	}
	if len(p) >= largeAnswer && !w.Written() {
		if err := Reserve(w.c.Request.Context(), int64(len(p))); err != nil {
			w.refused = true
			w.Header().Del("ETag") // these are the large answer's
			w.Header().Del("Content-Type")
			w.c.Writer = w.ResponseWriter
			writeProblem(w.c, err)
			return len(p), nil
		}
	}
	return w.ResponseWriter.Write(p)
}

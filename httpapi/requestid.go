package httpapi

import (
	"context"
	"crypto/rand"
	"strings"

	"github.com/gin-gonic/gin"
)

// RequestIDHeader names a request: a client may send its own name, and every answer has one.
const RequestIDHeader = "X-Request-Id"

// maxRequestID bounds what a client may send.
const maxRequestID = 128

type requestIDKey struct{}

// RequestID is the name of the request that ctx belongs to, or "".
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

// identify names a request and its answer. What the client sent counts if it is harmless in a log.
func identify(c *gin.Context) {
	id := c.GetHeader(RequestIDHeader)
	if !harmless(id) {
		id = strings.ToLower(rand.Text())
	}
	c.Request = c.Request.WithContext(context.WithValue(c.Request.Context(), requestIDKey{}, id))
	c.Header(RequestIDHeader, id)
	c.Next()
}

// harmless reports whether an id is one word of letters, digits and a few signs.
func harmless(id string) bool {
	// no blank, no quote
	return id != "" && len(id) <= maxRequestID && strings.Trim(id,
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:/+=@-") == ""
}

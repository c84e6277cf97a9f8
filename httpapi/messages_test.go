package httpapi_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/access"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/httpapi"
)

type wordedInput struct {
	Body struct {
		ID     string         `json:"id,omitempty" pattern:"^[a-z0-9][a-z0-9._-]*$"`
		Full   string         `json:"full,omitempty" pattern:"^([a-z0-9][a-z0-9._-]*:)?[a-z0-9][a-z0-9._-]*$"`
		Status string         `json:"status,omitempty" enum:"queued,dead_letter"`
		Wait   fleet.Duration `json:"wait,omitempty"`
	}
}

// TestMessagesAreForPeople: no regular expressions, and what a word may be even if what was sent is a part of one.
func TestMessagesAreForPeople(t *testing.T) {
	t.Parallel()
	s := httpapi.New(httpapi.Options{})
	httpapi.Register(s.API(), access.View, huma.Operation{OperationID: "say", Method: http.MethodPost, Path: "/say"},
		func(context.Context, *wordedInput) (*httpapi.StatusOutput, error) {
			return &httpapi.StatusOutput{}, nil
		})
	for body, want := range map[string]string{
		`{"id":"A B"}`:      `must be lower-case letters, digits, ".", "_" and "-", and begin with a letter or digit`,
		`{"full":"a@b"}`:    `must be lower-case letters, digits, ".", "_" and "-", and begin with a letter or digit; the tenant and ":" may stand before it`,
		`{"status":"dead"}`: `expected value to be one of "queued, dead_letter"`,
		`{"stat":"queued"}`: `unexpected property; did you mean status?`,
		`{"Full":"a"}`:      `unexpected property; did you mean full?`,
		`{"colour":"red"}`:  `unexpected property; known are full, id, status, wait`,
		`{"wait":"long"}`:   `not a duration: write it like "30s", "1m30s" or "7d"`,
	} {
		w := do(s.Handler(), http.MethodPost, "/say", body)
		require.Equal(t, 422, w.Code)
		require.Equal(t, want, problemOf(t, w).Errors[0].Message, body)
	}
}

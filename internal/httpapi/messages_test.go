package httpapi_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/sdk/api"
)

type wordedInput struct {
	Body struct {
		ID     string       `json:"id,omitempty" pattern:"^[a-z0-9][a-z0-9._-]*$"`
		Full   string       `json:"full,omitempty" pattern:"^([a-z0-9][a-z0-9._-]*:)?[a-z0-9][a-z0-9._-]*$"`
		Status string       `json:"status,omitempty" enum:"queued,dead_letter"`
		Wait   api.Duration `json:"wait,omitempty"`
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

// TestWhatCannotBeDecodedHasItsPlace: it fits the schema all the same.
func TestWhatCannotBeDecodedHasItsPlace(t *testing.T) {
	t.Parallel()
	s := httpapi.New(httpapi.Options{})
	type inner struct {
		Wait api.Duration `json:"wait,omitempty"`
	}
	httpapi.Register(s.API(), access.View, huma.Operation{OperationID: "say", Method: http.MethodPost, Path: "/say"},
		func(context.Context, *struct {
			Body struct {
				inner
				One   *inner           `json:"one,omitempty"`
				Many  []inner          `json:"many,omitempty"`
				Named map[string]inner `json:"named,omitempty"`
			}
		}) (*httpapi.StatusOutput, error) {
			return &httpapi.StatusOutput{}, nil
		})
	for body, want := range map[string]string{
		`{"one":{"wait":"24:00:00"}}`:               "body.one.wait",
		`{"many":[{"wait":"1s"},{"wait":"5:99"}]}`:  "body.many[1].wait",
		`{"named":{"a":{"wait":"1s2"}}}`:            "body.named.a.wait",
		`{"one":{"wait":"1s"},"many":[{"wait":1}]}`: "body.many[0].wait",
	} {
		w := do(s.Handler(), http.MethodPost, "/say", body)
		require.Equal(t, 422, w.Code, body)
		found := problemOf(t, w).Errors
		require.Len(t, found, 1, body)
		require.Equal(t, want, found[0].Location, body)
		require.Contains(t, found[0].Message, "duration", body)
	}
}

package httpapi_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/sdk/api"
)

type countedInput struct {
	Body []json.RawMessage `maxItems:"5000"`
}

// What a body's schema counts is counted as the body comes: the values of one that has too many take no memory.
func TestElementsAreCountedAsTheyCome(t *testing.T) {
	t.Parallel()
	s := httpapi.New(httpapi.Options{})
	httpapi.Register(s.API(), access.View, huma.Operation{OperationID: "take", Method: http.MethodPost, Path: "/take",
		MaxBodyBytes: 32 << 20},
		func(_ context.Context, in *countedInput) (*httpapi.StatusOutput, error) {
			out := &httpapi.StatusOutput{}
			out.Body.Status = strconv.Itoa(len(in.Body))
			return out, nil
		})
	list := func(n int) string { return "[1" + strings.Repeat(",1", n-1) + "]" }
	const huge = 8 << 20
	deep := strings.Repeat("[", 300)
	for name, c := range map[string]struct {
		body     string
		location string // of the refusal
		message  string // or how many were taken
		read     int    // bytes of it, about; 0: all
	}{
		"as many as may be":     {list(5000), "", "5000", 0},
		"one more":              {list(5001), "body", "expected array length <= 5000", 0},
		"far too many":          {list(huge), "body", "expected array length <= 5000", 1 << 20},
		"many in one":           {"[" + list(huge) + "]", "", "1", 0},
		"an object, not a list": {`{"tasks":` + list(huge) + "}", "body", "expected array", 0},
		"too deep": {"[0," + deep + list(huge), "body[1][0][0][0][0][0][0][0]",
			"JSON may be nested at most 256 levels deep, with what it is sent in", 1 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body := strings.NewReader(c.body)
			w := httptest.NewRecorder()
			r := httptest.NewRequest(http.MethodPost, "/take", io.NopCloser(body))
			r.Header.Set("Content-Type", "application/json")
			s.Handler().ServeHTTP(w, r)
			if c.location == "" {
				require.Equal(t, http.StatusOK, w.Code, w.Body)
				require.JSONEq(t, `{"status":"`+c.message+`"}`, w.Body.String())
				return
			}
			p := problemOf(t, w)
			require.Equal(t, http.StatusUnprocessableEntity, w.Code)
			require.Equal(t, []api.ProblemField{{Location: c.location, Message: c.message}}, p.Errors)
			if c.read > 0 {
				require.GreaterOrEqual(t, body.Len(), len(c.body)-c.read, "no more is read")
			}
		})
	}
}

func TestAKeyThatIsThereTwice(t *testing.T) {
	t.Parallel()
	type input struct {
		Body struct {
			Type    string          `json:"type"`
			Payload json.RawMessage `json:"payload,omitempty"`
			Tasks   []struct {
				Type string `json:"type"`
			} `json:"tasks,omitempty"`
		}
	}
	s := httpapi.New(httpapi.Options{})
	httpapi.Register(s.API(), access.Operate, huma.Operation{OperationID: "take", Method: http.MethodPost, Path: "/take"},
		func(context.Context, *input) (*httpapi.StatusOutput, error) { return &httpapi.StatusOutput{}, nil })
	httpapi.Register(s.API(), access.Session, huma.Operation{OperationID: "poll", Method: http.MethodPost, Path: "/poll"},
		func(context.Context, *input) (*httpapi.StatusOutput, error) { return &httpapi.StatusOutput{}, nil })
	for body, location := range map[string]string{
		`{"type":"a","type":"b"}`:                                     "body.type",
		`{"type":"a","payload":{"n":1,"n":2}}`:                        "body.payload.n",
		`{"type":"a","payload":[1,{"x":{"n":1,"m":2,"\u006e":3}}]}`:   "body.payload[1].x.n",
		`{"type":"a","tasks":[{"type":"a"},{"type":"a","type":"a"}]}`: "body.tasks[1].type",
		`{"type":"a","payload":{"a":{"n":1},"b":{"n":1}}}`:            "",
	} {
		w := do(s.Handler(), http.MethodPost, "/take", body)
		if location == "" {
			require.Equal(t, http.StatusOK, w.Code, body)
			continue
		}
		require.Equal(t, http.StatusUnprocessableEntity, w.Code, body)
		require.Equal(t, []api.ProblemField{{Location: location, Message: "is there twice: keep one of them"}},
			problemOf(t, w).Errors, body)
	}
	w := do(s.Handler(), http.MethodPost, "/poll", `{"type":"a","payload":{"n":1,"n":2}}`)
	require.Equal(t, http.StatusOK, w.Code, "what an agent's handler made")
	w = do(s.Handler(), http.MethodPost, "/take", `{"type":"a","payload":[1e400,-0,1.10]}`)
	require.Equal(t, http.StatusOK, w.Code, "any number")
}

func TestWhatFollowsTheBodyIsRefused(t *testing.T) {
	t.Parallel()
	s := httpapi.New(httpapi.Options{})
	httpapi.Register(s.API(), access.View, huma.Operation{OperationID: "take", Method: http.MethodPost, Path: "/take",
		MaxBodyBytes: 32 << 20},
		func(context.Context, *countedInput) (*httpapi.StatusOutput, error) {
			return &httpapi.StatusOutput{}, nil
		})
	many := "[1" + strings.Repeat(",1", 4000) + "]"
	for name, c := range map[string]struct{ body, place string }{
		"another object":   {"[]\n{\"a\":" + many + "}", "line 2, column 1"},
		"another list":     {"[] " + many, "line 1, column 4"},
		"text":             {`[]"` + strings.Repeat("x", 1<<20), "line 1, column 3"},
		"after a word":     {"true " + many, "line 1, column 6"},
		"ends that differ": {"[}" + many, "line 1, column 2"},
		"commas":           {"[]\n" + strings.Repeat(",", 1<<20), "line 2, column 1"},
		"many ends":        {"[" + strings.Repeat("]", 1<<20), "line 1, column 3"},
		"an end first":     {"]" + many, "line 1, column 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := do(s.Handler(), http.MethodPost, "/take", c.body)
			require.Equal(t, http.StatusBadRequest, w.Code, w.Body)
			require.Contains(t, w.Body.String(), "not valid JSON at "+c.place)
		})
	}
}

func TestLargeTextThatIsNotJSONIsLocated(t *testing.T) {
	t.Parallel()
	many := "[" + strings.Repeat("{},\n", 20_000)
	for name, c := range map[string]struct{ body, detail string }{
		"an element": {many + `{"a" 1}]`, "not valid JSON at line 20001, column 6"},
		"no end":     {many + `{}`, "not valid JSON at line 20001, column 2"},
		"more":       {many + `{}] {}`, "not valid JSON at line 20001, column 5"},
		"a comma":    {many + `]`, "not valid JSON at line 20001, column 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := httpapi.New(httpapi.Options{})
			httpapi.Register(s.API(), access.View, huma.Operation{OperationID: "take", Method: http.MethodPost,
				Path: "/take"}, func(context.Context, *struct{ Body []any }) (*httpapi.StatusOutput, error) {
				return &httpapi.StatusOutput{}, nil
			})
			w := do(s.Handler(), http.MethodPost, "/take", c.body)
			require.Equal(t, http.StatusBadRequest, w.Code)
			require.Contains(t, w.Body.String(), c.detail)
		})
	}
}

type repeatedInput struct {
	One  string   `query:"one"`
	Many []string `query:"many,explode"`
}

// Of a parameter that is given twice no value is left out without a word.
func TestRepeatedParameters(t *testing.T) {
	t.Parallel()
	s := httpapi.New(httpapi.Options{})
	var got *repeatedInput
	httpapi.Register(s.API(), access.View, huma.Operation{OperationID: "list", Method: http.MethodGet, Path: "/list"},
		func(_ context.Context, in *repeatedInput) (*httpapi.StatusOutput, error) {
			got = in
			return &httpapi.StatusOutput{}, nil
		})
	ask := func(query string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/list?"+query, nil))
		return w
	}
	w := ask("one=a&many=x&one=b")
	require.Equal(t, http.StatusUnprocessableEntity, w.Code)
	require.Contains(t, w.Body.String(), `"location":"query.one","message":"is given more than once: give it once"`)
	require.Less(t, ask("one=a&many=x&many=y").Code, 300)
	require.Equal(t, []string{"x", "y"}, got.Many)
}

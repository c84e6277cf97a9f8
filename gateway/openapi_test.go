package gateway_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/httpapi"
)

// validated holds every answer of the server to its own OpenAPI document, so each test of the API tests the document.
func validated(t *testing.T, s *httpapi.Server) http.Handler {
	t.Helper()
	text, err := s.API().OpenAPI().Downgrade() // the validator knows 3.0
	require.NoError(t, err)
	document, err := openapi3.NewLoader().LoadFromData(text)
	require.NoError(t, err)
	document.Servers = nil
	require.NoError(t, document.Validate(t.Context()))
	router, err := gorillamux.NewRouter(document)
	require.NoError(t, err)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		recorder := httptest.NewRecorder()
		s.Handler().ServeHTTP(recorder, r)
		checkAnswer(t, router, r, recorder)
		for name, values := range recorder.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(recorder.Code)
		_, _ = w.Write(recorder.Body.Bytes())
	})
}

func checkAnswer(t *testing.T, router routers.Router, r *http.Request, recorder *httptest.ResponseRecorder) {
	t.Helper()
	route, params, err := router.FindRoute(r)
	if err != nil {
		return // not a route: 404 and 405 have no document
	}
	err = openapi3filter.ValidateResponse(t.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: r, PathParams: params, Route: route},
		Status:                 recorder.Code,
		Header:                 recorder.Header(),
		Body:                   io.NopCloser(bytes.NewReader(recorder.Body.Bytes())),
		Options: &openapi3filter.Options{IncludeResponseStatus: true, // the validator reads no lines of JSON
			ExcludeResponseBody: recorder.Header().Get("Content-Type") == "application/x-ndjson"},
	})
	assert.NoError(t, err, "%s %s: %d %s", r.Method, r.URL, recorder.Code, recorder.Body)
}

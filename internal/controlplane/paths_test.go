package controlplane

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/httpapi"
)

// TestNoSpellingOfAPathGetsPastThePolicies has strangers spell paths so that the check and the router might disagree.
// What is not a route is 404 or 405; what is one asks who they are.
func TestNoSpellingOfAPathGetsPastThePolicies(t *testing.T) {
	t.Parallel()
	_, gate := testTokens()
	server := everyRoute(t, httpapi.Options{Gate: letIn{gate}})
	for _, target := range []string{
		"/api/v1/agents/tokens/", "/api/v1/agents//tokens", "//api/v1/agents/tokens", "/api/v1/agents/tokens//",
		"/API/v1/agents/tokens",
		"/api/v1/agents/Tokens", "/api/v1/agents%2Ftokens", "/api%2Fv1%2Fagents%2Ftokens", "/api/v1/agents/%74okens",
		"/api/v1/agents/tokens%2F",
		"/api/v1/agents/tokens%00", "/api/v1/agents/tokens;a=b", "/api/v1/agents/tokens?x",
		"/healthz/../api/v1/agents/tokens",
		"/docs/..%2Fapi/v1/agents/tokens", "/page/x/..%2F..%2Fapi/v1/agents/tokens", "/./api/v1/agents/tokens",
		"/api/v1/agents/./tokens",
		"/api/v1/agents/x%2Fdrain", "/api/v1/agents/register%2F", "/api/v1/agents/register/", "/healthz%2F..%2Fmetrics",
		"/metrics/", "/Metrics", "//metrics",
		"/api/v1/agents/tasks%2Fbulk", "/api/v1/agents/tasks/%2e%2e/tokens", "/api/v1/agents/clusters/x%2Ftargets",
		"/openapi.json/../metrics", "/%6detrics",
	} {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT",
			"get", "PROPFIND", "GET2"} {
			r := httptest.NewRequest(http.MethodGet, target, http.NoBody)
			r.Method = method
			w := httptest.NewRecorder()
			server.Handler().ServeHTTP(w, r)
			require.Contains(t, []int{http.StatusUnauthorized, http.StatusNotFound, http.StatusMethodNotAllowed},
				w.Code, "%s %s", method, target)
		}
	}
}

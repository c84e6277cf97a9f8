package httpapi

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"
)

const eventStream = "text/event-stream"

// serve answers HEAD as GET, as checks of load balancers and `curl -I` want it: net/http leaves the body out. A stream
// has no end that could be waited for, so there is no HEAD of it.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodHead && !s.streams[r.URL.Path] {
		get := *r
		get.Method = http.MethodGet
		r = &get
	}
	if s.mayCompress(r) {
		s.compressed.ServeHTTP(w, r)
		return
	}
	s.engine.ServeHTTP(w, r)
}

// streaming reports whether an operation answers a stream of events.
func streaming(op *huma.Operation) bool {
	for _, response := range op.Responses {
		if response.Content[eventStream] != nil {
			return true
		}
	}
	return false
}

package httpapi

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/klauspost/compress/gzhttp"
	"github.com/klauspost/compress/gzip"
)

const (
	eventStream = "text/event-stream"
	// NDJSON is the type of answers that are JSON objects on lines, which are written as they are read.
	NDJSON = "application/x-ndjson"
)

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
		if response.Content[eventStream] != nil || response.Content[NDJSON] != nil {
			return true
		}
	}
	return false
}

const (
	// compressFrom is how many bytes an answer must have to be compressed; below, it fits into a few packets as it is.
	compressFrom = 4 << 10
	// CompressedTag ends the ETag of a compressed answer, within the quotes: its bytes are others.
	CompressedTag = "-gzip"
)

// compressing makes a handler that compresses large answers in JSON for clients that take gzip. Fast rather
// than small: the answer of 500 agents is a seventh then, within a millisecond.
func compressing(next http.Handler) http.Handler {
	wrap,
		err := gzhttp.NewWrapper(gzhttp.EnableZstd(false), gzhttp.CompressionLevel(gzip.BestSpeed),
		gzhttp.MinSize(compressFrom),
		gzhttp.SuffixETag(CompressedTag), gzhttp.ContentTypeFilter(func(kind string) bool {
			return strings.HasPrefix(kind, "application/json") || strings.HasPrefix(kind, problemType)
		}))
	if err != nil {
		panic(fmt.Errorf("httpapi: compression: %w", err)) //nolint:forbidigo // the options are constants: it never happens
	}
	return wrap(next)
}

// mayCompress leaves out answers that people and their tools do not read: the agents' exchanges are all POST, and
// small. It also leaves out streams, which would be held back until there is enough to compress, and routes that
// compress by themselves: /metrics, pages, /openapi.json.
func (s *Server) mayCompress(r *http.Request) bool {
	return r.Method == http.MethodGet && !s.streams[r.URL.Path] && strings.HasPrefix(r.URL.Path, "/api/")
}

package devserver

import (
	"crypto/subtle"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"go.uber.org/zap"

	"mainstay.dev/mainstay/connlimit"
)

// maxStrangers is how many connections one address may have that have not shown the key yet.
const maxStrangers = 64

// front is where clients of a Temporal with a key come in. It asks for the key before it reads more of a request than
// its headers: Temporal's frontend first takes up to 4 MiB of each of any number of requests into memory.
//
// A connection without the key carries few requests: whoever lacks it is told so, and the connection is closed. So
// answers that are not read take no memory.
func front(l net.Listener, frontend, key string, own *tls.Config) *http.Server {
	temporal := &http.Transport{TLSClientConfig: own, Protocols: new(http.Protocols)}
	temporal.Protocols.SetHTTP2(true)
	quiet := log.New(io.Discard, "", 0)
	// Without FlushInterval: gRPC's errors are headers that end the stream, which flushed are headers that do not.
	proxy := &httputil.ReverseProxy{Transport: temporal, ErrorLog: quiet,
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "https", Host: frontend}) }}
	server := &http.Server{ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
		ErrorLog: quiet, Protocols: new(http.Protocols),
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 20_000, MaxReadFrameSize: 1 << 20,
			WriteByteTimeout: 20 * time.Second},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), []byte("Bearer "+key)) == 1 {
				connlimit.Proven(r.Context(), "")
				proxy.ServeHTTP(w, r)
				return
			}
			if !connlimit.Refused(r.Context()) {
				panic(http.ErrAbortHandler) //nolint:forbidigo // net/http's way to end a request without its answer
			}
			w.Header().Set("Content-Type", "application/grpc")
			w.Header().Set(http.TrailerPrefix+"Grpc-Status", "7") // permission denied
			w.Header().Set(http.TrailerPrefix+"Grpc-Message", "the key is missing or wrong")
		})}
	server.Protocols.SetUnencryptedHTTP2(true)
	connlimit.New(maxStrangers, zap.NewNop()).Apply(server)
	go func() { _ = server.Serve(l) }()
	return server
}

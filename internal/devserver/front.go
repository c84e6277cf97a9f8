package devserver

import (
	"context"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"go.uber.org/zap"

	"mainstay.dev/mainstay/internal/connlimit"
)

const (
	// maxStrangers is how many connections one address may have that have not shown the key yet.
	maxStrangers = 64
	// maxHeaders bounds the headers of a request. keylessBytes bounds the bytes read from a connection before the key:
	// the headers, and the first frames of HTTP/2. Each frame takes at least a read, and keylessReads bounds the reads:
	// clients need about ten, and more where the headers come in pieces.
	maxHeaders   = 16 << 10
	keylessBytes = maxHeaders + 4<<10
	keylessReads = 64
)

// front is where clients of a Temporal with a key connect. It asks for the key before it reads more of a request than
// its headers: Temporal's frontend first takes up to 4 MiB of each of any number of requests into memory.
//
// A connection without the key carries few requests: the client gets an error, and the connection is closed. So unread
// answers take no memory. Bodies take none either: only the headers of a request are read. Frames are small, because
// memory for a frame is reserved once its length was read.
func front(l net.Listener, frontend, key string, own *tls.Config) *http.Server {
	temporal := &http.Transport{TLSClientConfig: own, Protocols: new(http.Protocols)}
	temporal.Protocols.SetHTTP2(true)
	quiet := log.New(io.Discard, "", 0)
	// Without FlushInterval: gRPC's errors are headers that end the stream, which flushed are headers that do not.
	proxy := &httputil.ReverseProxy{Transport: temporal, ErrorLog: quiet,
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "https", Host: frontend}) }}
	// Without IdleTimeout: Go keeps an HTTP/2 connection that has ended amid a request in memory for so long.
	server := &http.Server{ReadHeaderTimeout: 5 * time.Second, MaxHeaderBytes: maxHeaders,
		ErrorLog: quiet, Protocols: new(http.Protocols),
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 20_000, MaxReadFrameSize: 16 << 10,
			WriteByteTimeout: 20 * time.Second},
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, keylessKey{}, conn)
		},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), []byte("Bearer "+key)) == 1 {
				connlimit.Proven(r.Context(), "")
				r.Context().Value(keylessKey{}).(*keyless).decided()
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
	go func() { _ = server.Serve(keylessListener{l}) }()
	return server
}

// keyless is a connection on which nobody has shown the key yet. It is read no further than keylessBytes, and no more
// often than keylessReads, until somebody does, and is closed if that is not soon.
type keyless struct {
	net.Conn
	bytes   int             // that may still be read
	reads   int             // likewise
	waiting context.Context // for the key
	decided context.CancelFunc
}

type keylessKey struct{}

// keylessListener gives connections on which nobody has shown the key yet.
type keylessListener struct{ net.Listener }

// Accept waits for the next connection.
func (l keylessListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	k := &keyless{Conn: conn, bytes: keylessBytes, reads: keylessReads}
	k.waiting, k.decided = context.WithTimeout(context.Background(), provenWithin)
	context.AfterFunc(k.waiting, func() {
		if errors.Is(k.waiting.Err(), context.DeadlineExceeded) {
			_ = conn.Close()
		}
	})
	return k, nil
}

// Read waits for the key once no more may be read without.
func (k *keyless) Read(p []byte) (int, error) {
	if k.bytes == 0 || k.reads == 0 {
		<-k.waiting.Done()
	}
	select {
	case <-k.waiting.Done():
		return k.Conn.Read(p)
	default:
	}
	n, err := k.Conn.Read(p[:min(len(p), k.bytes)])
	k.bytes -= n
	k.reads--
	return n, err
}

// Close ends the connection, and whoever waits for the key.
func (k *keyless) Close() error {
	k.decided()
	return k.Conn.Close()
}

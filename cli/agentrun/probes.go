package agentrun

import (
	"fmt"
	"net"
	"net/http"
	"time"
)

// serveAgentHealth serves an agent's probes at an address, or nothing at "". stop ends it.
func serveAgentHealth(address string, handler http.Handler) (stop func(), err error) {
	if address == "" {
		return func() {}, nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("the health probes cannot be served at %s: %w\nChoose another address with --health",
			address, err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second,
		IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	go func() { _ = server.Serve(listener) }()
	return func() { _ = server.Close() }, nil
}

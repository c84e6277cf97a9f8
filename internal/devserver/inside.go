package devserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.temporal.io/server/common"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/primitives"
	"go.temporal.io/server/common/resource"
	"go.temporal.io/server/common/rpc/encryption"
	"go.uber.org/fx"
)

const (
	// provenWithin is how long a connection to a port of Temporal's own parts has to show the certificate.
	provenWithin = 5 * time.Second
	// acceptRetry is the pause after the process had no file for a connection.
	acceptRetry = 5 * time.Millisecond
)

// keepInside makes Temporal's services listen through inside, if they have a certificate of their own. Temporal gives
// no other access to its listeners: it makes each service from what this variable lists.
var keepInside = sync.OnceFunc(func() {
	resource.DefaultOptions = fx.Options(resource.DefaultOptions, fx.Decorate(
		func(
			own common.RPCFactory, conf *config.Config, name primitives.ServiceName, tls encryption.TLSConfigProvider,
		) (net.Listener, error) {
			internal, secured := tls.(*internalTLS)
			if !secured {
				return own.GetGRPCListener(), nil
			}
			rpc := conf.Services[string(name)].RPC
			l, err := net.Listen("tcp", net.JoinHostPort(rpc.BindOnIP, strconv.Itoa(rpc.GRPCPort)))
			if err != nil {
				return nil, fmt.Errorf("listen for Temporal's %s service: %w", name, err)
			}
			return newInside(l, internal.server), nil
		}))
})

// inside is a listener that only gives connections on which the client has shown this process's certificate. It holds
// at most maxStrangers others: the oldest makes room, so that they take no more of the process's files.
type inside struct {
	net.Listener
	certificates *tls.Config
	proven       chan net.Conn
	closed       context.Context
	close        context.CancelFunc
}

func newInside(l net.Listener, certificates *tls.Config) *inside {
	in := &inside{Listener: l, certificates: certificates, proven: make(chan net.Conn)}
	in.closed, in.close = context.WithCancel(context.Background())
	go in.admit()
	return in
}

// Accept waits for the next client that has shown the certificate.
func (in *inside) Accept() (net.Conn, error) {
	select {
	case conn := <-in.proven:
		return conn, nil
	case <-in.closed.Done():
		return nil, net.ErrClosed
	}
}

// Close ends the listener and closes the connections that it has not given yet.
func (in *inside) Close() error {
	in.close()
	return in.Listener.Close()
}

// unproven is a connection on which nobody has shown the certificate yet.
type unproven struct {
	net.Conn
	decided atomic.Bool // it is let in, or closed
}

// admit takes connections until the listener is closed.
func (in *inside) admit() {
	strangers := make(chan *unproven, maxStrangers)
	for {
		conn, err := in.Listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			time.Sleep(acceptRetry)
			continue
		}
		next := &unproven{Conn: conn}
		select {
		case strangers <- next:
		default:
			if oldest := <-strangers; oldest.decided.CompareAndSwap(false, true) {
				_ = oldest.Close()
			}
			strangers <- next
		}
		go in.ask(next)
	}
}

// ask gives a connection to the service once its client has shown the certificate, and closes it otherwise.
func (in *inside) ask(s *unproven) {
	conn := tls.Server(s.Conn, in.certificates)
	ctx, cancel := context.WithTimeout(in.closed, provenWithin)
	defer cancel()
	err := conn.HandshakeContext(ctx)
	if !s.decided.CompareAndSwap(false, true) {
		return
	}
	if err == nil {
		select {
		case in.proven <- conn:
			return
		case <-in.closed.Done():
		}
	}
	_ = s.Close()
}

package devserver

import (
	"crypto/tls"
	"net"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// TestErrorsOfTemporalStayErrors: gRPC answers an error with headers that end the stream. A client does not see the
// error where the end comes later.
func TestErrorsOfTemporalStayErrors(t *testing.T) {
	t.Parallel()
	certified := httptest.NewTLSServer(nil)
	t.Cleanup(certified.Close)
	temporal := grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(&certified.TLS.Certificates[0])),
		grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error { return status.Error(codes.NotFound, "none") }))
	t.Cleanup(temporal.Stop)
	listeners := make([]net.Listener, 2)
	for n := range listeners {
		var err error
		listeners[n], err = net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
	}
	go func() { _ = temporal.Serve(listeners[0]) }()
	own := &tls.Config{InsecureSkipVerify: true}
	server := front(listeners[1], listeners[0].Addr().String(), "key", own)
	t.Cleanup(func() { _ = server.Close() })
	c, err := grpc.NewClient(listeners[1].Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer key")
	var callers errgroup.Group
	for range 4 {
		callers.Go(func() error {
			for range 500 {
				err := c.Invoke(ctx, "/a/b", &emptypb.Empty{}, &emptypb.Empty{})
				if status.Code(err) != codes.NotFound {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, callers.Wait())
}

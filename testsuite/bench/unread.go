package bench

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"mainstay.dev/mainstay/client"
	"mainstay.dev/mainstay/pki"
)

// Requests that an attacker has under way on one connection: as many as these servers take.
const (
	serveStreams    = 100
	temporalStreams = 20_000
)

// withhold asks over one HTTP/2 connection, and does not read what the server answers. It tells how each request was
// answered, as far as it knows, and returns when the connection has ended.
func (a *attack) withhold(ctx context.Context, i *Installation, answer func(status string)) {
	address, dialer := i.temporal, net.Dialer{Control: smallBuffers}
	if a.https {
		address, dialer = strings.TrimPrefix(i.url, "https://"), net.Dialer{}
	}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		_ = pause(ctx, 50*time.Millisecond)
		return
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if a.https {
		config := i.https.Clone()
		config.ServerName, config.NextProtos = "127.0.0.1", []string{"h2"}
		conn = tls.Client(conn, config)
	}
	framer := http2.NewFramer(conn, conn)
	request := http2.HeadersFrameParam{StreamID: 1, BlockFragment: a.headers(address), EndHeaders: true,
		EndStream: true}
	_, err = io.WriteString(conn, http2.ClientPreface)
	err = cmp.Or(err, framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
	switch {
	case err != nil:
	case a.https:
		readNoBody(framer, request, answer)
	default:
		readNothing(ctx, framer, request, answer)
	}
}

// readNoBody keeps requests under way, and reads how they are answered. The window is 0: no byte of a body may come.
func readNoBody(framer *http2.Framer, request http2.HeadersFrameParam, answer func(status string)) {
	framer.ReadMetaHeaders = hpack.NewDecoder(4<<10, nil)
	for waiting := map[uint32]bool{}; ; { // streams; true: nothing has come
		for ; len(waiting) < serveStreams; request.StreamID += 2 {
			if framer.WriteHeaders(request) != nil {
				return
			}
			waiting[request.StreamID] = true
		}
		frame, err := framer.ReadFrame()
		if err != nil {
			return
		}
		switch f := frame.(type) {
		case *http2.MetaHeadersFrame:
			waiting[f.StreamID] = false
			answer(f.PseudoValue("status"))
		case *http2.RSTStreamFrame:
			if waiting[f.StreamID] {
				answer("reset")
			}
			delete(waiting, f.StreamID)
		}
	}
}

// readNothing has the answers to pings fill the buffers of the connection, and then asks: a refusal has no body that
// waits for a window, so it has to wait for those.
func readNothing(
	ctx context.Context, framer *http2.Framer, request http2.HeadersFrameParam, answer func(status string),
) {
	const pings = 8_000 // they fill the buffers; when 10,000 wait, the server ends the connection
	for n := 0; ; n++ {
		switch {
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
func smallBuffers(_, _ string, c syscall.RawConn) (err error) {
	unreached := c.Control(func(socket uintptr) {
		err = cmp.Or(syscall.SetsockoptInt(int(socket), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 2<<10),
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

// overHTTPS is a `mainstay serve` beside the Temporal of i: HTTP/2 needs https, which `dev` does not speak. The first
// call starts it.
func (i *Installation) overHTTPS(ctx context.Context) (*Installation, error) {
	if i.hub == nil {
		if err := i.certify(); err != nil {
			return nil, fmt.Errorf("make a certificate: %w", err)
		}
		if err := i.startServe(ctx, "hub,gateway,worker"); err != nil {
			return nil, err
		}
	}
	c, err := client.New(client.Options{URL: i.hubURL, Token: attackAdmin, Patience: -1,
		HTTPClient: newHTTPClient(i.https)})
	return &Installation{Client: c, url: i.hubURL, plane: i.hub, https: i.https}, err
}

// certificate is the file of a certificate and its key.
func (i *Installation) certificate() string { return filepath.Join(i.dir, "certificate.pem") }

// certify makes the certificate, and has clients trust it.
func (i *Installation) certify() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().AddDate(0, 0, 1), IsCA: true,
		BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	data := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})...)
	if err := os.WriteFile(i.certificate(), data, 0o600); err != nil {
		return err
	}
	i.https, err = pki.Client(i.certificate(), "", "")
	return err
}

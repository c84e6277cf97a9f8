package guard

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxClientChain is how many certificates a client may send: its own, and those between it and its authority. Each
	// may be tried for each, and nobody has proven anything yet.
	maxClientChain = 3
	// maxRSABits and maxRSAExponent bound what a check of a signature costs.
	maxRSABits, maxRSAExponent = 4096, 65537
	// shakeBytes is how much is read of a connection before its handshake is over.
	shakeBytes = 24 << 10
	// maxVerified bounds the chains that are remembered.
	maxVerified = 10_000
)

// verified remembers which clients' certificates are good, until when: each request asks.
var verified = struct {
	sync.Mutex
	until map[chain]time.Time
}{until: map[chain]time.Time{}}

// chain is what a client has sent, under the authorities of a time.
type chain struct {
	authorities *x509.CertPool
	sum         [sha256.Size]byte
}

// checkClient returns why the certificates that a client has sent are not good at a time. One that sends none is.
func checkClient(authorities *x509.CertPool, sent []*x509.Certificate, now time.Time) error {
	if len(sent) == 0 {
		return nil
	}
	if len(sent) > maxClientChain {
		return fmt.Errorf("the client sent %d certificates, and may send %d", len(sent), maxClientChain)
	}
	sum := sha256.New()
	for _, c := range sent {
		_, _ = sum.Write(c.Raw) // never fails; each certificate has its length in it
	}
	id := chain{authorities: authorities}
	sum.Sum(id.sum[:0])
	verified.Lock()
	until, known := verified.until[id]
	verified.Unlock()
	if known && now.Before(until) {
		return nil
	}
	between := x509.NewCertPool()
	for i, c := range sent {
		if !cheap(c) {
			return errors.New("the client sent a certificate with a key of another kind than RSA of up to 4096 bits, P-256, " +
				"P-384 or Ed25519")
		}
		if i > 0 {
			between.AddCert(c)
		}
	}
	chains, err := sent[0].Verify(x509.VerifyOptions{Roots: authorities, Intermediates: between, CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err != nil {
		return fmt.Errorf("the client's certificate: %w", err)
	}
	until = chains[0][0].NotAfter
	for _, c := range chains[0] {
		if c.NotAfter.Before(until) {
			until = c.NotAfter
		}
	}
	verified.Lock()
	defer verified.Unlock()
	if len(verified.until) >= maxVerified {
		clear(verified.until)
	}
	verified.until[id] = until
	return nil
}

// cheap reports whether a signature of the certificate's key is checked quickly.
func cheap(c *x509.Certificate) bool {
	switch key := c.PublicKey.(type) {
	case *rsa.PublicKey:
		return key.N.BitLen() <= maxRSABits && key.E <= maxRSAExponent
	case *ecdsa.PublicKey:
		return key.Curve == elliptic.P256() || key.Curve == elliptic.P384()
	case ed25519.PublicKey:
		return true
	}
	return false
}

// LimitHandshakes bounds how much is read of each connection of a listener until its handshake is over. It belongs
// directly below a TLS of ServerTLS.
func LimitHandshakes(l net.Listener) net.Listener { return handshakes{l} }

type handshakes struct{ net.Listener }

func (l handshakes) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &shakingHands{Conn: c, left: shakeBytes}, nil
}

// shakingHands is a connection whose handshake may not be over.
type shakingHands struct {
	net.Conn
	left int
	over atomic.Bool
}

// NetConn is the connection below.
func (c *shakingHands) NetConn() net.Conn { return c.Conn }

func (c *shakingHands) Read(b []byte) (int, error) {
	if c.over.Load() {
		return c.Conn.Read(b)
	}
	if c.left == 0 {
		return 0, io.ErrUnexpectedEOF
	}
	n, err := c.Conn.Read(b[:min(len(b), c.left)])
	c.left -= n
	return n, err
}

package pki_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/config/pki"
)

// Editors of Windows begin files with a byte order mark, before which encoding/pem finds nothing.
func TestByteOrderMarksAreSkipped(t *testing.T) {
	t.Parallel()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	of, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	certificate, key := filepath.Join(t.TempDir(), "cert"), filepath.Join(t.TempDir(), "key")
	write := func(path, kind string, der []byte) {
		text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
		require.NoError(t, os.WriteFile(path, append([]byte("\ufeff"), text...), 0o600))
	}
	write(certificate, "CERTIFICATE", of)
	write(key, "PRIVATE KEY", secret)
	config, err := pki.Client(certificate, certificate, key)
	require.NoError(t, err)
	require.Len(t, config.Certificates, 1)
}

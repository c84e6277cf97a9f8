// Package pki reads certificates, keys and authorities for TLS from files.
package pki

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"

	_ "golang.org/x/crypto/x509roots/fallback" // where the system has no authorities, as in an empty image

	"mainstay.dev/mainstay/internal/textfile"
)

// Authorities reads the certificates (PEM) of trusted authorities.
func Authorities(file string) (*x509.CertPool, error) {
	pem, err := textfile.ReadPEM(file)
	if err != nil {
		return nil, fmt.Errorf("read the certificate authority: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate in PEM", file)
	}
	return pool, nil
}

// Pair reads a certificate (PEM) and its key.
func Pair(certificate, key string) (tls.Certificate, error) {
	of, err := textfile.ReadPEM(certificate)
	if err != nil {
		return tls.Certificate{}, err
	}
	secret, err := textfile.ReadPEM(key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(of, secret)
}

// Client is how a client speaks https: ca (PEM) instead of the system's authorities, and a certificate of its own. All
// may be empty; nil means the defaults.
func Client(ca, certificate, key string) (*tls.Config, error) {
	if ca == "" && certificate == "" && key == "" {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	var err error
	if ca != "" {
		if config.RootCAs, err = Authorities(ca); err != nil {
			return nil, err
		}
	}
	if (certificate == "") != (key == "") {
		return nil, errors.New("a client certificate needs its key, and a key its certificate")
	}
	if certificate != "" {
		pair, err := Pair(certificate, key)
		if err != nil {
			return nil, fmt.Errorf("read the client certificate and key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

package devserver

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"time"

	"go.temporal.io/server/common/authorization"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/primitives"
	"go.temporal.io/server/common/rpc/encryption"
	"go.temporal.io/server/temporal"
)

// services are the services of Temporal that run. If clients need a key, Temporal's own worker has a frontend of its
// own, which only Temporal's services can use.
func services(key string) []string {
	if key == "" {
		return temporal.DefaultServices
	}
	return temporal.Services
}

// withKey makes the frontend refuse clients without the key, and all services refuse callers from outside this server.
func withKey(key string, internal *internalTLS) []temporal.ServerOption {
	if key == "" {
		return []temporal.ServerOption{
			temporal.WithAuthorizer(authorization.NewNoopAuthorizer()),
			temporal.WithClaimMapper(func(*config.Config) authorization.ClaimMapper {
				return authorization.NewNoopClaimMapper()
			}),
		}
	}
	return []temporal.ServerOption{
		temporal.WithAuthorizer(authorization.NewDefaultAuthorizer()),
		temporal.WithClaimMapper(func(*config.Config) authorization.ClaimMapper { return keyMapper("Bearer " + key) }),
		temporal.WithTLSConfigFactory(internal),
	}
}

// keyMapper is the header of those who know the key. They may do everything, and others nothing.
type keyMapper string

// GetClaims implements authorization.ClaimMapper.
func (m keyMapper) GetClaims(info *authorization.AuthInfo) (*authorization.Claims, error) {
	if subtle.ConstantTimeCompare([]byte(info.AuthToken), []byte(m)) == 1 {
		return &authorization.Claims{System: authorization.RoleAdmin}, nil
	}
	return &authorization.Claims{}, nil
}

// internalTLS is mutual TLS between Temporal's services, and of those in this process who use them: others come in by
// the front.
type internalTLS struct{ server, client *tls.Config }

var _ encryption.TLSConfigProvider = (*internalTLS)(nil)

// internalName is the name in the services' certificate.
const internalName = string(primitives.ServerService)

// newInternalTLS makes a certificate that all services of this process share. It is in this process's memory only, and
// trusts nobody but itself.
func newInternalTLS() (*internalTLS, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the key of Temporal's services: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		DNSNames:              []string{internalName},
		NotAfter:              time.Date(9999, time.December, 31, 0, 0, 0, 0, time.UTC),
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make the certificate of Temporal's services: %w", err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read the certificate of Temporal's services: %w", err)
	}
	trusted := x509.NewCertPool()
	trusted.AddCert(parsed)
	own := []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}
	return &internalTLS{
		server: &tls.Config{
			MinVersion:   tls.VersionTLS13,
			Certificates: own,
			NextProtos:   []string{"h2"},
			ClientAuth:   tls.RequireAnyClientCert,
			// There is one good certificate. Verifying a stranger's invention may take half a second.
			VerifyConnection: func(state tls.ConnectionState) error {
				if !bytes.Equal(state.PeerCertificates[0].Raw, der) {
					return errors.New("it is not the certificate of Temporal's services")
				}
				return nil
			},
		},
		client: &tls.Config{
			MinVersion:   tls.VersionTLS13,
			Certificates: own,
			RootCAs:      trusted,
			ServerName:   internalName,
		},
	}, nil
}

// GetInternodeServerConfig implements encryption.TLSConfigProvider. The services' listeners do TLS.
func (t *internalTLS) GetInternodeServerConfig() (*tls.Config, error) { return nil, nil }

// GetInternodeClientConfig implements encryption.TLSConfigProvider.
func (t *internalTLS) GetInternodeClientConfig() (*tls.Config, error) { return t.client, nil }

// GetFrontendServerConfig implements encryption.TLSConfigProvider. The frontend's listener does TLS.
func (t *internalTLS) GetFrontendServerConfig() (*tls.Config, error) { return nil, nil }

// GetFrontendClientConfig implements encryption.TLSConfigProvider.
func (t *internalTLS) GetFrontendClientConfig() (*tls.Config, error) { return nil, nil }

// GetRemoteClusterClientConfig implements encryption.TLSConfigProvider.
func (t *internalTLS) GetRemoteClusterClientConfig(string) (*tls.Config, error) { return nil, nil }

// GetExpiringCerts implements encryption.TLSConfigProvider.
func (t *internalTLS) GetExpiringCerts(time.Duration) (expiring, expired encryption.CertExpirationMap, err error) {
	return nil, nil, nil
}

package guard

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"

	"mainstay.dev/mainstay/internal/config/pki"
)

// TLSFiles name what a server needs for https. Certificate and Key are PEM; the certificate comes first, then those
// between it and its authority.
type TLSFiles struct {
	Certificate, Key string
	// ClientCA, unless empty, holds the authorities of client certificates. A client that sends one must have it from
	// them; with RequireClient, all must send one.
	ClientCA      string
	RequireClient bool
}

// tlsLook is how often the files are looked at, at most; a handshake looks, and a request with a client certificate.
const tlsLook = time.Second

// ServerTLS reads the files, and reads them again when they change. While the new files cannot be used, as when half
// written, the last good ones stay.
func ServerTLS(files TLSFiles, logger *zap.Logger) (*tls.Config, error) {
	if files.Certificate == "" || files.Key == "" {
		return nil, errors.New("https needs both a certificate and its key")
	}
	if files.RequireClient && files.ClientCA == "" {
		return nil, errors.New("client certificates can only be required with the file of their authority")
	}
	r := &tlsReload{files: files, logger: logger}
	if err := r.load(); err != nil {
		return nil, err
	}
	outer := r.present.Clone() // its own settings: the handshake takes those of present
	outer.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		config := r.current(time.Now())
		if hello == nil { // nobody shakes hands: somebody asks for the present settings
			return config, nil
		}
		config = config.Clone()
		config.VerifyConnection = func(state tls.ConnectionState) error {
			if err := checkClient(config.ClientCAs, state.PeerCertificates, time.Now()); err != nil {
				return err
			}
			if limited, ok := hello.Conn.(*shakingHands); ok {
				limited.over.Store(true)
			}
			return nil
		}
		return config, nil
	}
	return outer, nil
}

type tlsReload struct {
	files  TLSFiles
	logger *zap.Logger

	mu      sync.Mutex
	present *tls.Config
	state   string // of the files when present was read
	looked  time.Time
}

func (r *tlsReload) current(now time.Time) *tls.Config {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.looked) >= tlsLook {
		r.looked = now
		if state := r.fileState(); state != r.state {
			if err := r.load(); err != nil {
				r.logger.Error("The changed TLS files cannot be used; the last ones stay", zap.Error(err))
				r.state = state // say it once
			} else {
				r.logger.Info("The TLS files were read again")
			}
		}
	}
	return r.present
}

// load reads the files. A file that cannot be read keeps its last good content; without one, that is an error.
func (r *tlsReload) load() error {
	config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	if r.present != nil {
		config.Certificates, config.ClientCAs = r.present.Certificates, r.present.ClientCAs
	}
	state := r.fileState()
	pair, failed := pki.Pair(r.files.Certificate, r.files.Key)
	if failed == nil {
		config.Certificates = []tls.Certificate{pair}
	} else {
		failed = fmt.Errorf("read the TLS certificate and key: %w", failed)
	}
	if r.files.ClientCA != "" {
		authorities, err := pki.Authorities(r.files.ClientCA)
		if err == nil {
			config.ClientCAs = authorities
		}
		failed = errors.Join(failed, err)
		config.ClientAuth = tls.RequestClientCert // checkClient verifies it
		if r.files.RequireClient {
			config.ClientAuth = tls.RequireAnyClientCert
		}
	}
	if len(config.Certificates) == 0 || r.files.ClientCA != "" && config.ClientCAs == nil {
		return failed
	}
	r.present, r.state = config, state
	return failed
}

// fileState changes when a file does.
func (r *tlsReload) fileState() string {
	state := ""
	for _, name := range []string{r.files.Certificate, r.files.Key, r.files.ClientCA} {
		if name == "" {
			continue
		}
		if info, err := os.Stat(name); err == nil {
			state += fmt.Sprintf("%s %d %d\n", info.ModTime(), info.Size(), len(name))
		}
	}
	return state
}

// certified reports whether a handshake would take the client certificate of a request now. The one that did may be
// long ago: a connection lives as long as both sides like.
func certified(r *http.Request, now time.Time) bool {
	roots := authorities(r)
	return roots != nil && checkClient(roots, r.TLS.PeerCertificates, now) == nil
}

// authorities are those whose client certificates the server of a request takes now; nil: none. They are in the
// settings that ServerTLS has made.
func authorities(r *http.Request) *x509.CertPool {
	server, _ := r.Context().Value(http.ServerContextKey).(*http.Server)
	if server == nil || server.TLSConfig == nil || server.TLSConfig.GetConfigForClient == nil {
		return nil
	}
	config, err := server.TLSConfig.GetConfigForClient(nil)
	if err != nil {
		return nil
	}
	return config.ClientCAs
}

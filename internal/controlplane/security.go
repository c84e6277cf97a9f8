package controlplane

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"go.temporal.io/sdk/client"
	"go.uber.org/zap"

	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/config"
	"mainstay.dev/mainstay/internal/guard"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/hub"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/mainstay/internal/textfile"
	"mainstay.dev/sdk/api"
)

// adminTokenEnv is the environment's first admin token.
const adminTokenEnv = "MAINSTAY_ADMIN_TOKEN"

// SecurityFlags are the security flags of `serve` and `dev`.
type SecurityFlags struct {
	adminTokenFile, joinTokenFile string
	tlsCert, tlsKey, tlsClientCA  string
	auditLog                      string
	proxies                       []string
	insecure                      bool
}

// AddTo adds the flags that both commands have.
func (f *SecurityFlags) AddTo(flags *pflag.FlagSet) {
	flags.StringVar(&f.adminTokenFile, "admin-token-file", "",
		"file with the first admin token (default: $"+adminTokenEnv+")")
	flags.StringVar(&f.joinTokenFile, "join-token-file", "",
		"file with a join token for the agents of all clusters (default: $"+app.JoinTokenEnv+")")
	flags.StringVar(&f.auditLog, "audit-log", "",
		"where each change is written: log, off or a file (default: security.audit_log of the configuration, else log)")
	flags.StringSliceVar(
		&f.proxies,
		"trusted-proxies",
		nil,
		"addresses or CIDR blocks of the reverse proxies before this server, whose X-Forwarded-For tells who a client is (default: security.trusted_proxies of the configuration, else none)",
	)
}

// addServing adds the flags of `serve` alone.
func (f *SecurityFlags) addServing(flags *pflag.FlagSet) {
	f.AddTo(flags)
	flags.StringVar(&f.tlsCert, "tls-cert", "",
		"PEM file with the server's certificate: https; read again when it changes")
	flags.StringVar(&f.tlsKey, "tls-key", "", "PEM file with its key")
	flags.StringVar(&f.tlsClientCA, "tls-client-ca", "", "PEM file with the authorities of client certificates")
	flags.BoolVar(&f.insecure, "insecure", false,
		"no security: everybody may do everything; only on an address of this machine alone")
}

// Over replaces values of the configuration by those of the command line.
func (f *SecurityFlags) Over(s config.Security) config.Security {
	for _, field := range []struct {
		flag string
		into *string
	}{
		{f.adminTokenFile, &s.AdminTokenFile}, {f.joinTokenFile, &s.JoinTokenFile}, {f.tlsCert, &s.TLSCert},
		{f.tlsKey, &s.TLSKey},
		{f.tlsClientCA, &s.TLSClientCA}, {f.auditLog, &s.AuditLog},
	} {
		if field.flag != "" {
			*field.into = field.flag
		}
	}
	if len(f.proxies) > 0 {
		s.TrustedProxies = f.proxies
	}
	return s
}

// TrustedProxies are the proxies that are believed; nil: none.
func TrustedProxies(s config.Security) (*httpapi.Proxies, error) {
	blocks, err := s.Proxies()
	if err != nil || len(blocks) == 0 {
		return nil, app.WithExit(app.ExitUsage, err)
	}
	return httpapi.NewProxies(blocks), nil
}

// FirstTokens are the tokens that are known before any was made.
type FirstTokens struct{ Admin, Join string }

// AdminTokenGiven reports whether a person has chosen a first admin token.
func AdminTokenGiven(s config.Security, getenv func(string) string) bool {
	return s.AdminTokenFile != "" || strings.TrimSpace(getenv(adminTokenEnv)) != ""
}

// ReadFirstTokens reads them from files or the environment; empty: there is none.
func ReadFirstTokens(
	s config.Security, getenv func(string) string, log *zap.Logger,
) (t FirstTokens, err error) {
	if t.Admin, err = readToken(s.AdminTokenFile, adminTokenEnv, getenv, log); err != nil {
		return t, err
	}
	if t.Join, err = readToken(s.JoinTokenFile, app.JoinTokenEnv, getenv, log); err != nil {
		return t, err
	}
	if t.Admin != "" && t.Admin == t.Join {
		return t, app.UsageError("the admin token and the join token are the same: agents would be admins")
	}
	return t, nil
}

// readToken reads a secret of a person's own making from a file or the environment; empty: there is none.
func readToken(file, env string, getenv func(string) string, log *zap.Logger) (string, error) {
	source, text := env, strings.TrimSpace(getenv(env))
	if file != "" {
		var err error
		if text, err = readSecret(file, log); err != nil {
			return "", app.WithExit(app.ExitUsage, fmt.Errorf("read a token: %w", err))
		}
		source = file
	}
	switch {
	case text == "" && file != "":
		return "", app.UsageError("%s is empty; make a token with: openssl rand -hex 32", source)
	case text == "":
		return "", nil
	case len(text) > access.MaxToken || strings.ContainsAny(text, " \t\r\n"):
		return "", app.UsageError("the token in %s must be one word of at most %d characters", source, access.MaxToken)
	}
	return text, checkSecret("token", source, text, access.MinPlainToken)
}

// readSecret reads a file with a secret. Others must not be able to change it; that they can read it, as in many
// containers, is only worth a warning.
func readSecret(file string, log *zap.Logger) (string, error) {
	info, err := os.Stat(file)
	if err != nil {
		return "", err
	}
	if info.Mode().IsRegular() {
		switch mode := info.Mode().Perm(); {
		case Foreign(info):
			return "", fmt.Errorf("%s belongs to another user, who can change it: chown it to the user of this process", file)
		case mode&0o022 != 0:
			return "", fmt.Errorf("others can change %s (mode %#o): chmod 600 it", file, mode)
		case mode&0o004 != 0:
			log.Warn("Every user of this machine can read a file with a secret: chmod 600 it", zap.String("file", file))
		}
	}
	return textfile.ReadWord(file)
}

// minDistinct is how many different characters a secret must have. Random ones have fewer once in millions of times.
const minDistinct = 8

// checkSecret refuses a secret that somebody could guess.
func checkSecret(what, source, text string, least int) error {
	distinct := map[rune]bool{}
	for _, r := range text {
		distinct[r] = true
	}
	switch {
	case len(text) < least:
		return app.UsageError("the %s in %s has %d characters, at least %d are needed; "+
			"make one with: openssl rand -hex 32", what, source, len(text), least)
	case len(distinct) < minDistinct:
		return app.UsageError("the %s in %s has only %d different characters and can be guessed; "+
			"make one with: openssl rand -hex 32", what, source, len(distinct))
	}
	return nil
}

// errNoAdmin is what `serve` says when nobody could do anything.
func errNoAdmin() error {
	return app.UsageError(`say who may use the API. Make a first admin token and keep it:
  export %s=$(openssl rand -hex 32)
or name a file with --admin-token-file. Clients send it as MAINSTAY_TOKEN, and make others with: mainstay token create
To try things on this machine alone: --insecure with --http 127.0.0.1:8080`, adminTokenEnv)
}

// checkServing refuses a `serve` that nobody, or everybody, could use. t are the first tokens.
func (f *SecurityFlags) checkServing(s config.Security, r roles, t FirstTokens, listener net.Listener) error {
	if f.insecure {
		switch {
		case s.AdminTokenFile != "" || s.JoinTokenFile != "" || s.TLSCert != "":
			return app.UsageError(
				"--insecure switches security off, but tokens or certificates are set: leave out the one or the others")
		case !Loopback(listener):
			return app.UsageError(
				"--insecure is for this machine alone, and others can reach %s: listen on 127.0.0.1, or make an admin token",
				listener.Addr(),
			)
		}
		return nil
	}
	adminCertificate := false
	for _, c := range s.Certificates {
		adminCertificate = adminCertificate || c.Role == string(api.RoleAdmin)
	}
	if r.gateway && t.Admin == "" && !(adminCertificate && s.TLSClientCA != "") {
		return errNoAdmin()
	}
	return nil
}

// checkInsecure refuses to open an installation to everybody that has tokens.
func checkInsecure(ctx context.Context, temporal client.Client, namespace string) error {
	tokens, err := store.Store{Client: temporal, Namespace: namespace}.Tokens(ctx)
	if err != nil {
		return fmt.Errorf("see whether there are tokens: %w", err)
	}
	if len(tokens) > 0 {
		return app.UsageError(
			"--insecure would open an installation to everybody that has tokens (%d in the namespace %s): "+
				"leave it out and give an admin token, or name another namespace",
			len(tokens),
			namespace,
		)
	}
	return nil
}

// NewGate makes the door of the API.
func NewGate(
	s config.Security, t FirstTokens, key []byte, temporal client.Client, log *zap.Logger,
) (*guard.Gate, *guard.Audit, error) {
	audit, err := guard.OpenAudit(s.AuditLog, log)
	if err != nil {
		return nil, nil, err
	}
	certificates := make([]guard.Certificate, len(s.Certificates))
	for i, c := range s.Certificates {
		certificates[i] = guard.Certificate{Subject: c.Subject, Role: api.AccessRole(c.Role), Tenant: c.Tenant,
			Joins: c.Join, Cluster: c.Cluster}
	}
	return guard.New(guard.Options{
		Tokens:       guard.FromTemporal(temporal, key, log.Named("guard")),
		Logger:       log.Named("guard"),
		AdminToken:   t.Admin,
		JoinToken:    t.Join,
		SessionKey:   key,
		Certificates: certificates,
		Rate:         s.RateLimit,
		Burst:        s.RateBurst,
		Audit:        audit,
		AuditReads:   s.AuditReads,
		Sessions:     hub.SessionsOf(key),
		EndSession:   guard.SessionEnder(temporal),
	}), audit, nil
}

// APIGate is the gate of the API; g is nil while security is off.
func APIGate(g *guard.Gate, key []byte) httpapi.Gate {
	if g == nil {
		return guard.NewUnlocked(hub.SessionsOf(key))
	}
	return g
}

// MetricsPolicy is who may read /metrics.
func MetricsPolicy(open bool) access.Policy {
	if open {
		return access.Open
	}
	return access.View
}

const (
	// TokenKeyEnv holds the secret key of the hubs.
	TokenKeyEnv = "MAINSTAY_TOKEN_KEY"
	// minTokenKey is how many characters the key must have: 16 random bytes in hex.
	minTokenKey = 32
)

// LoadTokenKey reads the key that seals tokens, sessions and attempts, from a file or the environment.
func LoadTokenKey(file string, getenv func(string) string, log *zap.Logger) ([]byte, error) {
	source, text := TokenKeyEnv, strings.TrimSpace(getenv(TokenKeyEnv))
	if file != "" {
		var err error
		if text, err = readSecret(file, log); err != nil {
			return nil, app.WithExit(app.ExitUsage, fmt.Errorf("hub.token_key_file: %w", err))
		}
		source = file
	}
	if text == "" && file == "" {
		return nil, app.UsageError(
			"hubs and gateways need a secret key, the same for all of an installation. Make one and keep it:\n  openssl rand -hex 32 > token-key\nand name the file in the configuration (hub.token_key_file), or put the key into %s",
			TokenKeyEnv,
		)
	}
	return []byte(text), checkSecret("key", source, text, minTokenKey)
}

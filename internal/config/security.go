package config

import (
	"fmt"
	"net/netip"
	"slices"
)

// Security says who may use the API. It is off only while nothing listens beyond this machine; see docs/SECURITY.md.
type Security struct {
	// AdminTokenFile holds the first admin token, at least 32 characters. Default: MAINSTAY_ADMIN_TOKEN.
	AdminTokenFile string `json:"admin_token_file,omitempty"`
	// JoinTokenFile holds a join token for all clusters, at least 32 characters. Default: MAINSTAY_JOIN_TOKEN.
	JoinTokenFile string `json:"join_token_file,omitempty"`
	// TLSCert and TLSKey are PEM files: serve speaks https, and reads them again when they change. Default: http.
	TLSCert string `json:"tls_cert,omitempty"`
	TLSKey  string `json:"tls_key,omitempty"`
	// TLSClientCA is a PEM file with the authorities of client certificates. Default: none are asked for.
	TLSClientCA string `json:"tls_client_ca,omitempty"`
	// RequireClientCert turns away who has none. Default false: a token will do.
	RequireClientCert bool `json:"require_client_cert,omitempty"`
	// Certificates give client certificates their roles. Default: none has one.
	Certificates []ClientCertificate `json:"certificates,omitempty"`
	// TrustedProxies are the addresses of reverse proxies before this server, as CIDR blocks or one by one. Their
	// X-Forwarded-For counts as the client's address. Default: none, so that nobody can pretend to be another.
	TrustedProxies []string `json:"trusted_proxies,omitempty"`
	// RateLimit is how many requests a second one token may make, and RateBurst how many at once; agents are not
	// counted. 0: no limit. Default 200 and 1000.
	RateLimit float64 `json:"rate_limit,omitempty" minimum:"0"`
	RateBurst int     `json:"rate_burst,omitempty" minimum:"0"`
	// AuditLog takes one line for each change: log (the process's own log), off, or a file. Default log.
	AuditLog string `json:"audit_log,omitempty"`
	// AuditReads also writes a line for each thing that was read. Default false.
	AuditReads bool `json:"audit_reads,omitempty"`
	// OpenMetrics lets everybody read /metrics. Default false: a viewer's token is needed.
	OpenMetrics bool `json:"open_metrics,omitempty"`
}

// ClientCertificate is what the holder of a client certificate may do.
type ClientCertificate struct {
	// Subject is one of the certificate's names: its common name or a DNS name, a mail address if it has an @, or a URI
	// if it has "://". With "cn:", "dns:" or "mail:" before it, only one of that kind.
	Subject string `json:"subject,omitempty"`
	// Role is viewer, operator or admin. Default: none.
	Role string `json:"role,omitempty"`
	// Tenant limits it to the tasks of one tenant. Default: all.
	Tenant string `json:"tenant,omitempty"`
	// Join lets it register agents, in Cluster or, if that is empty, in any. Default false.
	Join    bool   `json:"join,omitempty"`
	Cluster string `json:"cluster,omitempty"`
}

// Proxies are the blocks of TrustedProxies.
func (s *Security) Proxies() ([]netip.Prefix, error) {
	blocks := make([]netip.Prefix, 0, len(s.TrustedProxies))
	for _, text := range s.TrustedProxies {
		block, err := proxyPrefix(text)
		if err != nil {
			return nil, err
		}
		blocks = append(blocks, block)
	}
	return blocks, nil
}

// proxyPrefix reads a CIDR block or one address. One that holds all addresses is refused: every client could then say
// who it is.
func proxyPrefix(text string) (netip.Prefix, error) {
	block, err := netip.ParsePrefix(text)
	if err != nil {
		address, err := netip.ParseAddr(text)
		if err != nil || address.Zone() != "" {
			return netip.Prefix{}, fmt.Errorf("%q is no address and no CIDR block", text)
		}
		block = netip.PrefixFrom(address, address.BitLen())
	}
	if bits := block.Bits() - 96; block.Addr().Is4In6() && bits >= 0 {
		block = netip.PrefixFrom(block.Addr().Unmap(), bits)
	}
	if block.Bits() == 0 {
		return netip.Prefix{}, fmt.Errorf("%q is everybody's", text)
	}
	return block.Masked(), nil
}

func (k *checker) security(s Security) {
	k.check((s.TLSCert == "") == (s.TLSKey == ""), "security.tls_key", "must be set together with tls_cert")
	k.check(s.TLSClientCA == "" || s.TLSCert != "", "security.tls_client_ca",
		"needs tls_cert and tls_key: certificates are shown over https only")
	k.check(!s.RequireClientCert || s.TLSClientCA != "", "security.require_client_cert", "needs tls_client_ca")
	k.check(s.RateLimit >= 0 && s.RateLimit <= 1e6, "security.rate_limit", "must lie between 0 and 1000000")
	k.check(s.RateBurst >= 1 && s.RateBurst <= 1_000_000, "security.rate_burst", "must lie between 1 and 1000000")
	for i, text := range s.TrustedProxies {
		_, err := proxyPrefix(text)
		k.check(err == nil, fmt.Sprintf("security.trusted_proxies[%d]", i),
			"must be an address or a CIDR block, as 10.0.0.7 or 10.0.0.0/24, and not everybody's")
	}
	k.check(s.AuditLog != "", "security.audit_log", "must be log, off or a file")
	for i, c := range s.Certificates {
		at := fmt.Sprintf("security.certificates[%d].", i)
		k.check(c.Subject != "", at+"subject", "must be a name in the certificate")
		k.check(c.Role == "" || slices.Contains([]string{"viewer", "operator", "admin"}, c.Role), at+"role",
			"must be viewer, operator or admin")
		k.check(c.Role != "" || c.Join, at+"role",
			"is missing: say what the certificate is good for, by role or by join")
		k.check(c.Tenant == "" || c.Role == "viewer" || c.Role == "operator", at+"tenant",
			"is for viewers and operators: clusters and tokens are everybody's")
		k.check(c.Cluster == "" || c.Join, at+"cluster", "is for join")
		if c.Tenant != "" {
			k.id(at+"tenant", c.Tenant)
		}
		if c.Cluster != "" {
			k.id(at+"cluster", c.Cluster)
		}
	}
}

package httpapi

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"
)

// Client is where a request comes from.
type Client struct {
	// Address is the client's host; with its port where it has connected to us itself.
	Address string
	// Proxy is the other end of our connection where trusted proxies stand between; empty: none does.
	Proxy string
	// HTTPS says that the client speaks https, to us or to a proxy. A request that only claims so is believed: all that
	// comes of it is that its own cookie is made stricter.
	HTTPS bool
}

// ForwardedFor is the header in which proxies tell the client's address.
const ForwardedFor = "X-Forwarded-For"

// Proxies are those whose word about clients counts. A nil one trusts nobody.
type Proxies struct{ trusted []netip.Prefix }

// NewProxies trusts proxies at some addresses.
func NewProxies(trusted []netip.Prefix) *Proxies { return &Proxies{trusted} }

func (p *Proxies) trusts(address netip.Addr) bool {
	return slices.ContainsFunc(p.trusted, func(prefix netip.Prefix) bool { return prefix.Contains(address) })
}

// client finds out who a request comes from. Each proxy adds whom it hears to the end of the header, so it is read from
// there: the first address that is not a trusted proxy's is the client's, and what stands before it the client may have
// made up. Where a proxy does not tell, or in words that are no address, it stands for the client itself.
func (p *Proxies) client(r *http.Request) Client {
	c := Client{Address: r.RemoteAddr, HTTPS: r.TLS != nil || claimsHTTPS(r.Header)}
	remote, known := hostOf(r.RemoteAddr)
	if p == nil || !known || !p.trusts(remote) {
		return c
	}
	elements := strings.Split(strings.Join(r.Header.Values(ForwardedFor), ","), ",")
	for _, element := range slices.Backward(elements) {
		if strings.TrimSpace(element) == "" {
			continue
		}
		address, known := hostOf(element)
		if !known {
			break
		}
		c.Address, c.Proxy = address.String(), r.RemoteAddr
		if !p.trusts(address) {
			break
		}
	}
	return c
}

// hostOf reads an address with or without port and brackets.
func hostOf(text string) (netip.Addr, bool) {
	host := strings.TrimSpace(text)
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	} else if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		host = host[1 : len(host)-1]
	}
	address, err := netip.ParseAddr(host)
	return address.Unmap().WithZone(""), err == nil
}

// claimsHTTPS reports whether a request says that its client speaks https to a proxy.
func claimsHTTPS(h http.Header) bool {
	first, _, _ := strings.Cut(h.Get("X-Forwarded-Proto"), ",")
	return strings.EqualFold(strings.TrimSpace(first), "https")
}

type clientKey struct{}

// ClientOf is where a request comes from.
func ClientOf(r *http.Request) Client {
	if c, known := ClientFrom(r.Context()); known {
		return c
	}
	return (*Proxies)(nil).client(r)
}

// ClientFrom is where the request of a context comes from, if it was served by a Server.
func ClientFrom(ctx context.Context) (Client, bool) {
	c, known := ctx.Value(clientKey{}).(Client)
	return c, known
}

// locate finds out where each request comes from.
func locate(p *Proxies) gin.HandlerFunc {
	return func(c *gin.Context) {
		c.Request = c.Request.WithContext(context.WithValue(c.Request.Context(), clientKey{}, p.client(c.Request)))
		c.Next()
	}
}

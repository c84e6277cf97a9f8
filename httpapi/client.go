package httpapi

import (
	"context"
	"fmt"
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

// Headers in which proxies tell the client's address. Only one is read: a proxy that writes the one hands on what a
// client has put into the other.
const (
	ForwardedFor = "X-Forwarded-For"
	Forwarded    = "Forwarded" // RFC 7239
)

// Proxies are those whose word about clients counts. A nil one trusts nobody.
type Proxies struct {
	trusted []netip.Prefix
	header  string
}

// NewProxies trusts proxies at some addresses, which write a header: ForwardedFor or Forwarded.
func NewProxies(trusted []netip.Prefix, header string) (*Proxies, error) {
	if header != ForwardedFor && header != Forwarded {
		return nil, fmt.Errorf("proxies tell the client in %s or %s", ForwardedFor, Forwarded)
	}
	return &Proxies{trusted: trusted, header: header}, nil
}

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
	for element := range fromRight(r.Header.Values(p.header)) {
		if p.header == Forwarded {
			element = parameter(element, "for")
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
	if strings.EqualFold(strings.TrimSpace(first), "https") {
		return true
	}
	for element := range fromRight(h.Values(Forwarded)) {
		if strings.EqualFold(parameter(element, "proto"), "https") {
			return true
		}
	}
	return false
}

// fromRight yields the elements of a header that is a list, the last one first. It reads from the end, so that a quote
// that a client has left open cannot swallow what proxies have written after it.
func fromRight(lines []string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		give := func(element string) bool {
			return strings.TrimSpace(element) == "" || yield(element)
		}
		for _, line := range slices.Backward(lines) {
			end, quoted := len(line), false
			for i := len(line) - 1; i >= 0; i-- {
				switch {
				case line[i] == '"' && !escaped(line, i):
					quoted = !quoted
				case line[i] == ',' && !quoted:
					if !give(line[i+1 : end]) {
						return
					}
					end = i
				}
			}
			if !give(line[:end]) {
				return
			}
		}
	}
}

// escaped reports whether the character at i has a backslash before it that counts.
func escaped(s string, i int) bool {
	before := strings.TrimRight(s[:i], `\`)
	return (i-len(before))%2 == 1
}

// parameter is a value of an element of the header Forwarded, as for=192.0.2.1;proto=https; empty when it is not there,
// or is there twice.
func parameter(element, name string) (value string) {
	found := false
	for len(element) > 0 {
		end, quoted := len(element), false
		for i := range len(element) {
			if element[i] == '"' && !escaped(element, i) {
				quoted = !quoted
			}
			if element[i] == ';' && !quoted {
				end = i
				break
			}
		}
		key, text, _ := strings.Cut(element[:end], "=")
		if strings.EqualFold(strings.TrimSpace(key), name) {
			if found {
				return ""
			}
			value, found = unquote(strings.TrimSpace(text)), true
		}
		element = element[min(end+1, len(element)):]
	}
	return value
}

// unquote reads a quoted string, or a word as it stands.
func unquote(s string) string {
	if len(s) < 2 || s[0] != '"' || s[len(s)-1] != '"' {
		return s
	}
	var b strings.Builder
	for i := 1; i < len(s)-1; i++ {
		if s[i] == '\\' && i+1 < len(s)-1 {
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String()
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

package protocol

import (
	"crypto/tls"
	"errors"
	"net"
	"net/url"
	"strings"
)

// ShownURL is an address as logs, errors and pages show it: without the user and password, which may stand in it.
func ShownURL(address string) string {
	scheme, rest, found := strings.Cut(address, "://")
	if !found {
		scheme, rest = "", address
	} else {
		scheme += "://"
	}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	if at := strings.LastIndexByte(rest[:end], '@'); at >= 0 {
		return scheme + "***" + rest[at:]
	}
	return address
}

// The reasons when an address has the wrong scheme.
var (
	ErrSpeaksHTTPS = errors.New("it speaks https")
	ErrSpeaksHTTP  = errors.New("it does not speak https")
)

// Unreached is why a server did not answer a request, in short words and without its address, of the error of an HTTP
// client. lasting says that another try would end as this one.
func Unreached(err error) (lasting bool, reason error) {
	var distrusted *tls.CertificateVerificationError
	var plain tls.RecordHeaderError
	var operation *net.OpError
	var name *net.DNSError
	var address *url.Error
	switch {
	case errors.As(err, &distrusted):
		return true, distrusted.Err
	case errors.As(err, &plain), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return true, ErrSpeaksHTTP // net/http makes the latter of the former
	case errors.As(err, &name) && name.IsNotFound:
		return false, errors.New("the name of its host is not known")
	case strings.Contains(err.Error(), "invalid proxy address"): // which Go repeats, password and all
		return true, errors.New("HTTP_PROXY or HTTPS_PROXY is no address")
	case errors.As(err, &operation):
		return false, operation.Err
	case errors.As(err, &address):
		return false, address.Err
	}
	return false, err
}

// IsHTTPSHint reports whether a server that speaks https answered this to a request in plain text, in Go's own words.
func IsHTTPSHint(body []byte) bool {
	return strings.Contains(string(body), "HTTP request to an HTTPS server")
}

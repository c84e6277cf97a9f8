package app

import (
	"crypto/tls"
	"strings"

	"github.com/spf13/pflag"

	"mainstay.dev/mainstay/guard"
)

// Environment of clients, and of agents but for TokenEnv.
const (
	TokenEnv = "MAINSTAY_TOKEN"
	caEnv    = "MAINSTAY_CA"
	certEnv  = "MAINSTAY_CERT"
	keyEnv   = "MAINSTAY_KEY"
	// JoinTokenEnv is for agents, and for the control plane, which lets them in.
	JoinTokenEnv = "MAINSTAY_JOIN_TOKEN"
)

// Access is how a client proves who it is, and whom it believes.
type Access struct {
	token         string
	ca, cert, key string
}

// Flags adds those that clients and agents share.
func (c *Access) Flags(flags *pflag.FlagSet) {
	flags.StringVar(&c.ca, "ca", "",
		"PEM file with the authority of the server's certificate (default $"+caEnv+", else the system's)")
	flags.StringVar(&c.cert, "cert", "", "PEM file with a client certificate (default $"+certEnv+")")
	flags.StringVar(&c.key, "key", "", "PEM file with its key (default $"+keyEnv+")")
}

// Fill takes from the environment what no flag has given.
func (c *Access) Fill(getenv func(string) string) {
	for _, field := range []struct {
		into *string
		env  string
	}{{&c.token, TokenEnv}, {&c.ca, caEnv}, {&c.cert, certEnv}, {&c.key, keyEnv}} {
		if *field.into == "" {
			*field.into = strings.TrimSpace(getenv(field.env))
		}
	}
}

// TLS is nil where the system's defaults do.
func (c *Access) TLS() (*tls.Config, error) {
	config, err := guard.ClientTLS(c.ca, c.cert, c.key)
	return config, WithExit(ExitUsage, err)
}

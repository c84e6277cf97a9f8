package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"mainstay.dev/mainstay/guard"
)

// Environment of clients, and of agents but for tokenEnv.
const (
	tokenEnv = "MAINSTAY_TOKEN"
	caEnv    = "MAINSTAY_CA"
	certEnv  = "MAINSTAY_CERT"
	keyEnv   = "MAINSTAY_KEY"
)

// clientAccess is how a client proves who it is, and whom it believes.
type clientAccess struct {
	token         string
	ca, cert, key string
}

// tlsFlags adds those that clients and agents share.
func (c *clientAccess) tlsFlags(flags *pflag.FlagSet) {
	flags.StringVar(&c.ca, "ca", "", "PEM file with the authority of the server's certificate (default $"+caEnv+", else the system's)")
	flags.StringVar(&c.cert, "cert", "", "PEM file with a client certificate (default $"+certEnv+")")
	flags.StringVar(&c.key, "key", "", "PEM file with its key (default $"+keyEnv+")")
}

// fill takes from the environment what no flag has given.
func (c *clientAccess) fill(getenv func(string) string) {
	for _, field := range []struct {
		into *string
		env  string
	}{{&c.token, tokenEnv}, {&c.ca, caEnv}, {&c.cert, certEnv}, {&c.key, keyEnv}} {
		if *field.into == "" {
			*field.into = strings.TrimSpace(getenv(field.env))
		}
	}
}

// apply makes the client prove who it is.
func (c *clientAccess) apply(to *apiClient) error {
	config, err := guard.ClientTLS(c.ca, c.cert, c.key)
	if err != nil {
		return withExit(exitUsage, err)
	}
	to.token = c.token
	to.transport.TLSClientConfig = config
	if strings.ContainsAny(c.token, " \t\r\n") {
		return usageError("--token or %s must be one word", tokenEnv)
	}
	return nil
}

// joinToken reads the token with which an agent registers: a file, else the environment.
func joinToken(file string, getenv func(string) string) (string, error) {
	if file == "" {
		return strings.TrimSpace(getenv(joinTokenEnv)), nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return "", withExit(exitUsage, fmt.Errorf("read the join token: %w", err))
	}
	return strings.TrimSpace(string(data)), nil
}

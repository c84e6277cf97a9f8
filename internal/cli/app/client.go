package app

import (
	"cmp"
	"crypto/tls"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"mainstay.dev/mainstay/internal/config/pki"
	"mainstay.dev/sdk/client"
)

const (
	// DefaultServer is where `mainstay dev` serves the API.
	DefaultServer = "http://127.0.0.1:8080"
	serverEnv     = "MAINSTAY_SERVER"
)

// ServerFlag adds --server to the commands of a group.
func (a *App) ServerFlag(c *cobra.Command) {
	c.PersistentFlags().StringVar(&a.access.token, "token", "",
		"API token; better in $"+TokenEnv+", which other users do not see in the list of processes")
	a.access.Flags(c.PersistentFlags())
	c.PersistentFlags().StringVar(&a.server, "server", "",
		"URL of the REST API (default $"+serverEnv+", else "+DefaultServer+")")
}

// Client is the API's client of a command line. Answer is the JSON of the newest answer, for -o json.
type Client struct {
	*client.Client
	Answer json.RawMessage

	app *App
}

// Print prints the newest answer as JSON, or calls text.
func (c *Client) Print(text func() error) error { return c.app.Print(c.Answer, text) }

// Sayf prints the newest answer as JSON, or a text for people.
func (c *Client) Sayf(format string, args ...any) error {
	return c.Print(func() error { return c.app.Sayf(format, args...) })
}

// commandPatience is how long a command repeats requests that are safe to repeat. Nobody notices a short interruption,
// and a control plane that is down is still reported within a few seconds.
const commandPatience = 2 * time.Second

// Client is a client of the REST API at --server, $MAINSTAY_SERVER or the default.
func (a *App) Client() (*Client, error) {
	source, address := "--server", a.server
	if address == "" {
		source, address = serverEnv, a.Getenv(serverEnv)
	}
	address = cmp.Or(address, DefaultServer)
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	own := a.access
	own.Fill(a.Getenv)
	config, err := own.TLS()
	if err != nil {
		return nil, err
	}
	if strings.ContainsAny(own.token, " \t\r\n") {
		return nil, UsageError("--token or %s must be one word", TokenEnv)
	}
	transport := client.NewTransport()
	transport.TLSClientConfig = config
	c, err := client.New(client.Options{
		URL: address, Token: own.token, HTTPClient: &http.Client{Transport: transport}, Patience: commandPatience,
	})
	if err != nil {
		return nil, UsageError("%s: %w", source, err)
	}
	kept := &Client{app: a}
	kept.Client = c.Raw(&kept.Answer)
	return kept, nil
}

// HasCredential reports whether a client of the command line proves who it is.
func (a *App) HasCredential() bool {
	own := a.access
	own.Fill(a.Getenv)
	return own.token != "" || own.cert != ""
}

// hint says what to do when nothing answers.
func hint(err *client.UnreachableError) string {
	var distrusted *tls.CertificateVerificationError
	switch {
	case errors.Is(err.Reason, client.ErrSpeaksHTTPS):
		return ": write the address so, in --server or " + serverEnv
	case errors.Is(err.Reason, client.ErrSpeaksHTTP):
		return "\nWrite its address with http:// in --server or " + serverEnv
	case errors.As(err, &distrusted):
		return "\nIts certificate is not trusted here. Name the file with its authority with --ca or " + caEnv
	}
	return "\nIs `mainstay dev` running? Set its address with --server or " + serverEnv
}

// Environment of clients, and of agents but for TokenEnv.
const (
	TokenEnv = "MAINSTAY_TOKEN"
	caEnv    = "MAINSTAY_CA"
	CertEnv  = "MAINSTAY_CERT"
	keyEnv   = "MAINSTAY_KEY"
	// JoinTokenEnv is for agents, and for the control plane, which lets them in.
	JoinTokenEnv = "MAINSTAY_JOIN_TOKEN"
)

// Access is how a client proves who it is, and whom it believes.
type Access struct {
	token         string
	ca, cert, key string
}

// Flags adds the flags that clients and agents share.
func (c *Access) Flags(flags *pflag.FlagSet) {
	flags.StringVar(&c.ca, "ca", "",
		"PEM file with the authority of the server's certificate (default $"+caEnv+", else the system's)")
	flags.StringVar(&c.cert, "cert", "", "PEM file with a client certificate (default $"+CertEnv+")")
	flags.StringVar(&c.key, "key", "", "PEM file with its key (default $"+keyEnv+")")
}

// Fill takes from the environment the values that no flag has given.
func (c *Access) Fill(getenv func(string) string) {
	for _, field := range []struct {
		into *string
		env  string
	}{{&c.token, TokenEnv}, {&c.ca, caEnv}, {&c.cert, CertEnv}, {&c.key, keyEnv}} {
		if *field.into == "" {
			*field.into = strings.TrimSpace(getenv(field.env))
		}
	}
}

// TLS is nil where the system's defaults do.
func (c *Access) TLS() (*tls.Config, error) {
	config, err := pki.Client(c.ca, c.cert, c.key)
	return config, WithExit(ExitUsage, err)
}

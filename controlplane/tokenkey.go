package controlplane

import (
	"fmt"
	"os"
	"strings"

	"mainstay.dev/mainstay/cli/app"
)

const (
	// TokenKeyEnv holds the secret key of the hubs.
	TokenKeyEnv = "MAINSTAY_TOKEN_KEY"
	// minTokenKey is how many characters the key must have: 16 random bytes in hex.
	minTokenKey = 32
)

// LoadTokenKey reads the key that seals session and attempt tokens, from a file or the environment.
func LoadTokenKey(file string, getenv func(string) string) ([]byte, error) {
	source, text := TokenKeyEnv, getenv(TokenKeyEnv)
	if file != "" {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("hub.token_key_file: %w", err)
		}
		source, text = file, string(data)
	}
	text = strings.TrimSpace(text)
	switch {
	case text == "" && file == "":
		return nil, app.UsageError(
			"a hub needs a secret key, the same for all hubs of an installation. Make one and keep it:\n  openssl rand -hex 32 > token-key\nand name the file in the configuration (hub.token_key_file), or put the key into %s", TokenKeyEnv)
	case len(text) < minTokenKey:
		return nil, app.UsageError(
			"the key in %s has %d characters, at least %d are needed; make one with: openssl rand -hex 32", source, len(
				text), minTokenKey)
	}
	return []byte(text), nil
}

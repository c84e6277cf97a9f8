package main

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"mainstay.dev/mainstay/cli/app"
)

const (
	tokenKeyEnv = "MAINSTAY_TOKEN_KEY"
	// minTokenKey is how many characters the key must have: 16 random bytes in hex.
	minTokenKey = 32
)

// loadTokenKey reads the key that seals session and attempt tokens, from a file or the environment.
func loadTokenKey(file string, getenv func(string) string) ([]byte, error) {
	source, text := tokenKeyEnv, getenv(tokenKeyEnv)
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
		return nil, app.UsageError("a hub needs a secret key, the same for all hubs of an installation. Make one and keep it:\n  openssl rand -hex 32 > token-key\nand name the file in the configuration (hub.token_key_file), or put the key into %s", tokenKeyEnv)
	case len(text) < minTokenKey:
		return nil, app.UsageError("the key in %s has %d characters, at least %d are needed; make one with: openssl rand -hex 32", source, len(text), minTokenKey)
	}
	return []byte(text), nil
}

// kept reads a small file of the data directory, or makes it with a first content. Only its owner can read it.
func kept(dir, name string, first func() (string, error)) (string, error) {
	path := filepath.Join(dir, name)
	data, err := os.ReadFile(path)
	if err == nil && strings.TrimSpace(string(data)) != "" {
		return strings.TrimSpace(string(data)), nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	text, err := first()
	if err != nil {
		return "", err
	}
	return text, writeFile(path, []byte(text+"\n"))
}

// writeFile replaces a file in one step, so that a crash leaves the old or the new one.
func writeFile(path string, data []byte) error {
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func randomHex(n int) (string, error) {
	b := make([]byte, n)
	_, err := rand.Read(b)
	return hex.EncodeToString(b), err
}

package dev

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"mainstay.dev/mainstay/controlplane"
)

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

// keptTokens are `dev`'s: given, or made once and kept in its data directory.
func keptTokens(dir string, given controlplane.FirstTokens) (controlplane.FirstTokens, error) {
	var err error
	token := func(name string) (string, error) {
		return kept(dir, name, func() (string, error) { return randomHex(32) })
	}
	if given.Admin == "" {
		if given.Admin, err = token(adminTokenName); err != nil {
			return given, fmt.Errorf("the admin token: %w", err)
		}
	}
	if given.Join == "" {
		if given.Join, err = token(joinTokenName); err != nil {
			return given, fmt.Errorf("the join token: %w", err)
		}
	}
	return given, nil
}

// Names of the secrets' files in the data directory.
const (
	adminTokenName  = "admin-token"
	joinTokenName   = "join-token"
	temporalKeyName = "temporal-key"
)

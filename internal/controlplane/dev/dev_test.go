package dev

import (
	"cmp"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/cli/clitest"
	"mainstay.dev/mainstay/internal/config"
)

func TestMain(m *testing.M) { clitest.Main(m, clitest.Root(Command)) }

func TestBusyPortIsSaid(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	address := l.Addr().String()
	dir := filepath.Join(t.TempDir(), "data")
	got := clitest.Run(t.Context(), "", "dev", "--http", address, "--data-dir", dir)
	require.Equal(t, app.ExitFailure, got.Code)
	require.Contains(t, got.Stderr, "the REST API cannot listen on "+address+": ")
	require.Contains(t, got.Stderr, "choose another address with --http")
	_, err = os.Stat(dir)
	require.ErrorIs(t, err, os.ErrNotExist, "nothing may have been started")

	got = clitest.Run(t.Context(), "", "dev", "--http", "127.0.0.1:0", "--temporal", address, "--data-dir", dir)
	require.Equal(t, app.ExitFailure, got.Code)
	require.Contains(t, got.Stderr, "Temporal cannot listen on "+address)
	require.Contains(t, got.Stderr, "--temporal")
}

func TestKeptFilesAreKeptAndPrivate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, err := kept(dir, "token-key", func() (string, error) { return randomHex(32) })
	require.NoError(t, err)
	require.Len(t, first, 64)
	again, err := kept(dir, "token-key", func() (string, error) { return "", os.ErrInvalid })
	require.NoError(t, err)
	require.Equal(t, first, again)
	info, err := os.Stat(filepath.Join(dir, "token-key"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

func TestDevOptions(t *testing.T) {
	t.Parallel()
	given := func(flags ...string) func(string) bool {
		return func(name string) bool {
			for _, f := range flags {
				if f == name {
					return true
				}
			}
			return false
		}
	}
	c := config.Default()
	c.Dev.Agents, c.HTTP.Listen = 7, "127.0.0.1:9000"
	o, err := (&flags{ui: "off", agents: 2}).options(c, given("ui"))
	require.NoError(t, err)
	require.Equal(t, 7, o.Agents, "a flag that was not given does not win over the file")
	require.Equal(t, "127.0.0.1:9000", o.HTTP)
	require.Empty(t, o.UI)
	require.Equal(t, 7233, o.Temporal.Port)
	require.Len(t, o.Clusters, 1)

	o, err = (&flags{ui: "0", ephemeral: true, temporal: "localhost:0"}).options(config.Default(),
		given("ui", "temporal"))
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1:0", o.UI, "a free port")
	require.Equal(t, "127.0.0.1", o.Temporal.Host)
	require.Empty(t, o.dataDir)
}

// TestDataDirectoryOfOthers refuses a data directory where somebody else could have put first tokens and keys.
func TestDataDirectoryOfOthers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mode  os.FileMode
		owner int // 0: this user
		wants string
	}{
		"its owner's":          {mode: 0o700},
		"all may look":         {mode: 0o755},
		"all may write":        {mode: 0o777, wants: "all may write to it"},
		"it is another user's": {mode: 0o700, owner: 65534, wants: "belongs to another user"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.owner != 0 && os.Geteuid() != 0 {
				t.Skip("only root can give a directory away")
			}
			dir := t.TempDir()
			require.NoError(t, os.Chmod(dir, c.mode))
			require.NoError(t, os.Chown(dir, cmp.Or(c.owner, os.Geteuid()), -1))
			d := &Run{}
			err := d.prepareDir(dir)
			if c.wants == "" {
				require.NoError(t, err)
				d.log.Close()
				return
			}
			require.ErrorContains(t, err, c.wants)
		})
	}
}

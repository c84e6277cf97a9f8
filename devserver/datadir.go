package devserver

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"go.temporal.io/server/common/headers"
	"golang.org/x/sys/unix"
)

const (
	lockFile    = "lock"
	versionFile = "server-version"
)

// ErrDataDirInUse is wrapped when another process has the data directory.
var ErrDataDirInUse = errors.New("the data directory is in use by another process")

// dirLock is the hold of one process on a data directory. The kernel gives it free when the process dies.
type dirLock struct{ file *os.File }

func (l *dirLock) release() { _ = l.file.Close() }

// openDataDir makes the directory, takes it for this process and checks that its database is of this server's version:
// SQLite files have no schema upgrade.
func openDataDir(dir string) (*dirLock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the data directory: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the data directory's lock: %w", err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("%w (%s): is another `mainstay dev` running? Stop it, or choose another directory with --data-dir", ErrDataDirInUse, dir)
	}
	if err := checkVersion(dir); err != nil {
		_ = file.Close()
		return nil, err
	}
	return &dirLock{file}, nil
}

func checkVersion(dir string) error {
	path := filepath.Join(dir, versionFile)
	recorded, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := os.WriteFile(path, []byte(headers.ServerVersion+"\n"), 0o600); err != nil {
			return fmt.Errorf("record the server's version: %w", err)
		}
		return nil
	case err != nil:
		return fmt.Errorf("read the recorded server version: %w", err)
	}
	if version := strings.TrimSpace(string(recorded)); version != headers.ServerVersion {
		return fmt.Errorf("%s was written by Temporal %s and this program embeds %s; a SQLite file cannot be upgraded: "+
			"use the program that wrote it, or choose another directory with --data-dir", dir, version, headers.ServerVersion)
	}
	return nil
}

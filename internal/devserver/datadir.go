package devserver

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"go.temporal.io/server/common/headers"
	"golang.org/x/sys/unix"

	"mainstay.dev/mainstay/internal/contract"
)

const (
	lockFile    = "lock"
	versionFile = "server-version"
	// workflowsFile holds contract.WorkflowsVersion of the program that made the directory.
	workflowsFile = "workflows-version"
)

// ErrDataDirInUse is wrapped when another process has the data directory.
var ErrDataDirInUse = errors.New("the data directory is in use by another process")

// ErrOldData is wrapped when the open workflows in a data directory cannot be replayed by this program.
var ErrOldData = errors.New("the data directory is of another version")

// dirLock is the hold of one process on a data directory. The kernel gives it free when the process dies.
type dirLock struct{ file *os.File }

func (l *dirLock) release() { _ = l.file.Close() }

// openDataDir makes the directory, takes it for this process and checks that its database is of this server's version,
// as SQLite files have no schema upgrade, and that its workflows can be replayed.
func openDataDir(dir string, acceptOld bool) (*dirLock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the data directory: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the data directory's lock: %w", err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf(
			"%w (%s): is another `mainstay dev` running? Stop it, or choose another directory with --data-dir", ErrDataDirInUse, dir)
	}
	if err := checkVersions(dir, acceptOld); err != nil {
		_ = file.Close()
		return nil, err
	}
	return &dirLock{file}, nil
}

// checkVersions compares what wrote the directory with this program. A new directory is marked.
func checkVersions(dir string, acceptOld bool) error {
	if err := checkVersion(dir); err != nil {
		return err
	}
	path := filepath.Join(dir, workflowsFile)
	recorded, err := os.ReadFile(path)
	_, noData := os.Stat(filepath.Join(dir, databaseFile))
	switch {
	case errors.Is(err, fs.ErrNotExist) && errors.Is(noData, fs.ErrNotExist):
		if err := os.WriteFile(path, fmt.Appendln(nil, contract.WorkflowsVersion), 0o600); err != nil {
			return fmt.Errorf("record the version of the workflows: %w", err)
		}
		return nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("read the recorded version of the workflows: %w", err)
	case strings.TrimSpace(string(recorded)) == strconv.Itoa(contract.WorkflowsVersion) || acceptOld:
		return nil
	}
	return fmt.Errorf(
		"%w: %s was written by another version of this program, and this one cannot go on with its open workflows. "+
			"Remove the directory, or choose another one with --data-dir. If you need what is in it, run the program that wrote it until its work is done. "+
			"--accept-old-data starts all the same: what cannot go on stays as it is", ErrOldData, dir)
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
		return fmt.Errorf(
			"%s was written by Temporal %s and this program embeds %s; a SQLite file cannot be upgraded: "+
				"use the program that wrote it, or choose another directory with --data-dir", dir, version, headers.ServerVersion)
	}
	return nil
}

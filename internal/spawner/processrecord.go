package spawner

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/sdk/api"
)

// record is what the spawner's folder keeps of one process, in a file of its own.
type record struct {
	Spec      cluster.SpawnSpec `json:"spec"`
	Command   []string          `json:"command"`
	PID       int               `json:"pid,omitempty"`   // 0: it is about to be started, or was just now
	Ticks     uint64            `json:"ticks,omitempty"` // start in system ticks; differs when a number is used again
	StartedAt time.Time         `json:"started_at,omitzero"`
	Ended     string            `json:"ended,omitempty"` // how; empty: it runs
	EndedAt   time.Time         `json:"ended_at,omitzero"`
}

const recordSuffix = ".json"

func recordPath(dir, id string) string { return filepath.Join(dir, id+recordSuffix) }

func readRecords(dir string) ([]record, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read the spawner's folder: %w", err)
	}
	var records []record
	for _, entry := range entries {
		id, ok := strings.CutSuffix(entry.Name(), recordSuffix)
		if !ok || api.ValidateID("id", id) != nil {
			continue
		}
		rec, found, err := readRecord(dir, id)
		if err != nil {
			return nil, err
		}
		if found {
			records = append(records, rec)
		}
	}
	return records, nil
}

func readRecord(dir, id string) (rec record, found bool, err error) {
	data, err := os.ReadFile(recordPath(dir, id))
	if errors.Is(err, fs.ErrNotExist) {
		return rec, false, nil
	}
	if err != nil {
		return rec, false, fmt.Errorf("read what is known of agent %s: %w", id, err)
	}
	if err := json.Unmarshal(data, &rec); err != nil || rec.Spec.ID != id {
		return rec, false, fmt.Errorf("%s cannot be read; remove it when no agent of that name runs",
			recordPath(dir, id))
	}
	return rec, true, nil
}

// writeRecord replaces the file in one step.
func writeRecord(dir string, rec record) error {
	data, err := json.MarshalIndent(rec, "", "  ")
	if err != nil {
		return err
	}
	path := recordPath(dir, rec.Spec.ID)
	if err := os.WriteFile(path+".new", append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("write what is known of agent %s: %w", rec.Spec.ID, err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("write what is known of agent %s: %w", rec.Spec.ID, err)
	}
	return nil
}

func removeRecord(dir, id string) {
	_ = os.Remove(recordPath(dir, id))
	removeToken(dir, id)
}

func tokenPath(dir, id string) string { return filepath.Join(dir, id+".join-token") }

func removeToken(dir, id string) { _ = os.Remove(tokenPath(dir, id)) }

// writeToken makes an agent's join token and the file that only its user can read.
func writeToken(dir string, spec cluster.SpawnSpec, make JoinToken) (path string, err error) {
	token, err := make(spec)
	if err != nil {
		return "", fmt.Errorf("make the agent's join token: %w", err)
	}
	if path, err = filepath.Abs(tokenPath(dir, spec.ID)); err == nil {
		err = os.WriteFile(path, []byte(token), 0o600)
	}
	if err != nil {
		return "", fmt.Errorf("write the agent's join token: %w", err)
	}
	return path, nil
}

// lockFolder keeps other spawners off the folder for as long as the file is open.
func lockFolder(dir string) (*os.File, error) {
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the spawner's folder: %w", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = lock.Close()
		return nil, fmt.Errorf("another spawner uses %s: give this one a folder and a name of its own", dir)
	}
	return lock, nil
}

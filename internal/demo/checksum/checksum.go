// Package checksum is the work of the demo: its agents digest files.
package checksum

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"mainstay.dev/sdk/agent"
)

// Type is the task type of `mainstay demo`.
const Type = "checksum"

// Payload names files below the folder that agent and demo have in common.
type Payload struct {
	Files []string `json:"files"`
	// Rounds is how often each file is digested, every time after the digest of the round before; 0 is 1.
	Rounds int `json:"rounds,omitempty"`
}

// MaxRounds bounds what one task may ask for.
const MaxRounds = 10_000

// Result has a digest for each file of the payload.
type Result struct {
	Files []Sum `json:"files"`
}

// Sum is one file's digest.
type Sum struct {
	Path   string `json:"path"`
	SHA256 string `json:"sha256"`
	Bytes  int64  `json:"bytes"`
}

// Handler digests regular files below root, and no others: links out of it are not followed.
func Handler(root string) (agent.Handler, error) {
	folder, err := os.OpenRoot(root)
	if err != nil {
		return nil, fmt.Errorf("--demo-handlers: %w", err)
	}
	return func(ctx context.Context, task *agent.Task) (any, error) {
		var payload Payload
		if err := task.Decode(&payload); err != nil {
			return nil, err
		}
		if len(payload.Files) == 0 {
			return nil, agent.NonRetryable(errors.New(`the payload names no files; it must be {"files": ["path", …]}`))
		}
		if payload.Rounds < 0 || payload.Rounds > MaxRounds {
			return nil, agent.NonRetryable(fmt.Errorf("the payload's rounds must be 0 to %d", MaxRounds))
		}
		var result Result
		for i, path := range payload.Files {
			sum, err := File(ctx, folder, path, payload.Rounds)
			if permanent(err) {
				return nil, agent.NonRetryable(err)
			}
			if err != nil {
				return nil, err
			}
			result.Files = append(result.Files, sum)
			task.Progress(100*(i+1)/len(payload.Files), path)
		}
		return result, nil
	}, nil
}

var errNotRegular = errors.New("not a regular file")

// permanent reports whether another try cannot help. Too many open files, full memory or a failing disk may pass.
func permanent(err error) bool {
	if err == nil {
		return false
	}
	// os.Root has no error to compare with for paths that lead out of it.
	return errors.Is(err, errNotRegular) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) ||
		errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ENAMETOOLONG) || errors.Is(err, unix.ELOOP) ||
		errors.Is(err, unix.EINVAL) ||
		strings.Contains(err.Error(), "path escapes")
}

// File digests a regular file below root.
func File(ctx context.Context, root *os.Root, path string, rounds int) (Sum, error) {
	// Without waiting: opening a named pipe would otherwise block until somebody writes to it.
	file, err := root.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ENXIO) { // a socket, or a device without a driver
		err = fmt.Errorf("%s: %w", path, errNotRegular)
	}
	if err != nil {
		return Sum{}, err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return Sum{}, err
	}
	if !info.Mode().IsRegular() {
		return Sum{}, fmt.Errorf("%s: %w", path, errNotRegular)
	}
	var digest []byte
	var size int64
	for range max(1, rounds) {
		hash := sha256.New()
		_, _ = hash.Write(digest)
		_, err := file.Seek(0, io.SeekStart)
		if err == nil {
			size, err = io.Copy(hash, untilDone{ctx, file})
		}
		if err != nil {
			return Sum{}, fmt.Errorf("read %s: %w", path, err)
		}
		digest = hash.Sum(digest[:0])
	}
	return Sum{Path: path, SHA256: hex.EncodeToString(digest), Bytes: size}, nil
}

// untilDone reads until the context ends.
type untilDone struct {
	ctx context.Context
	r   io.Reader
}

func (u untilDone) Read(p []byte) (int, error) {
	if u.ctx.Err() != nil {
		return 0, context.Cause(u.ctx)
	}
	return u.r.Read(p)
}

// Combined is one digest of all files, independent of who digested which and when.
func Combined(sums []Sum) string {
	sums = slices.Clone(sums)
	slices.SortFunc(sums, func(a, b Sum) int { return strings.Compare(a.Path, b.Path) })
	hash := sha256.New()
	for _, s := range sums {
		_, _ = fmt.Fprintf(hash, "%s  %s\n", s.SHA256, s.Path)
	}
	return hex.EncodeToString(hash.Sum(nil))
}

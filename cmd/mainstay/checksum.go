package main

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

	"mainstay.dev/mainstay/agent"
)

// checksumType is the task type of `mainstay demo`.
const checksumType = "checksum"

// checksumPayload names files below the folder that agent and demo have in common.
type checksumPayload struct {
	Files []string `json:"files"`
}

type checksumResult struct {
	Files []fileSum `json:"files"`
}

// fileSum is one file's digest.
type fileSum struct {
	Path   string `json:"path"`
	SHA256 string `json:"sha256"`
	Bytes  int64  `json:"bytes"`
}

// checksumHandler digests regular files below root, and no others: links out of it are not followed.
func checksumHandler(root string) (agent.Handler, error) {
	folder, err := os.OpenRoot(root)
	if err != nil {
		return nil, fmt.Errorf("--demo-handlers: %w", err)
	}
	return func(ctx context.Context, task *agent.Task) (any, error) {
		var payload checksumPayload
		if err := task.Decode(&payload); err != nil {
			return nil, err
		}
		var result checksumResult
		for i, path := range payload.Files {
			if err := ctx.Err(); err != nil {
				return nil, context.Cause(ctx)
			}
			sum, err := sumFile(folder, path)
			if err != nil {
				return nil, agent.NonRetryable(err)
			}
			result.Files = append(result.Files, sum)
			task.Progress(100*(i+1)/len(payload.Files), path)
		}
		return result, nil
	}, nil
}

func sumFile(root *os.Root, path string) (fileSum, error) {
	file, err := root.Open(path)
	if err != nil {
		return fileSum{}, err
	}
	defer func() { _ = file.Close() }()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return fileSum{}, errors.Join(err, fmt.Errorf("%s: %w: not a regular file", path, fs.ErrInvalid))
	}
	hash := sha256.New()
	n, err := io.Copy(hash, file)
	if err != nil {
		return fileSum{}, err
	}
	return fileSum{Path: path, SHA256: hex.EncodeToString(hash.Sum(nil)), Bytes: n}, nil
}

// combined is one digest of all files, independent of who digested which and when.
func combined(sums []fileSum) string {
	sums = slices.Clone(sums)
	slices.SortFunc(sums, func(a, b fileSum) int { return strings.Compare(a.Path, b.Path) })
	hash := sha256.New()
	for _, s := range sums {
		_, _ = fmt.Fprintf(hash, "%s  %s\n", s.SHA256, s.Path)
	}
	return hex.EncodeToString(hash.Sum(nil))
}

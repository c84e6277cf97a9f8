package demo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"unicode/utf8"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/demo/checksum"
	"mainstay.dev/mainstay/internal/parallel"
)

const (
	// demoElements is about how many elements the demo makes of many files.
	demoElements = 2000
	// demoBatch bounds the files of one element, and so its payload and result.
	demoBatch = 1000
)

// demoFolder is the folder to digest: the given one, else the repository around the current folder, else that folder.
func demoFolder(ctx context.Context, path string) (string, error) {
	if path == "" {
		path = "."
		if top, err := exec.CommandContext(ctx, "git", "rev-parse", "--show-toplevel").Output(); err == nil {
			path = strings.TrimRight(string(top), "\r\n")
		}
	}
	folder, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if info, err := os.Stat(folder); err != nil || !info.IsDir() {
		return "", app.UsageError("--path: %s is not a folder that can be read", path)
	}
	return folder, nil
}

// demoFiles lists the regular files of a folder: in a repository those that git tracks, else all but skippedFolders.
func demoFiles(ctx context.Context, folder string) ([]string, error) {
	paths, err := trackedFiles(ctx, folder)
	if err != nil || len(paths) == 0 {
		if paths, err = walkFiles(folder); err != nil {
			return nil, fmt.Errorf("list the files of %s: %w", folder, err)
		}
	}
	files := paths[:0]
	for _, path := range paths {
		info, err := os.Lstat(filepath.Join(folder, path))
		if err == nil && info.Mode().IsRegular() && utf8.ValidString(path) { // JSON holds no other names
			files = append(files, path)
		}
	}
	slices.Sort(files)
	return files, nil
}

func trackedFiles(ctx context.Context, folder string) ([]string, error) {
	command := exec.CommandContext(ctx, "git", "ls-files", "-z", "--cached")
	command.Dir = folder
	out, err := command.Output()
	if err != nil {
		return nil, err
	}
	return slices.Compact(strings.FieldsFunc(string(out), func(r rune) bool { return r == 0 })), nil
}

// skippedFolders hold nothing that a person wrote.
var skippedFolders = []string{".git", "bin", ".mainstay"}

func walkFiles(folder string) ([]string, error) {
	var files []string
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != folder && slices.Contains(skippedFolders, entry.Name()):
			return filepath.SkipDir
		case !entry.Type().IsRegular():
			return nil
		}
		relative, err := filepath.Rel(folder, path)
		files = append(files, filepath.ToSlash(relative))
		return err
	})
	return files, err
}

// batches splits files into about demoElements groups.
func batches(files []string) [][]string {
	size := min(max(1, (len(files)+demoElements-1)/demoElements), demoBatch)
	return slices.Collect(slices.Chunk(files, size))
}

const (
	// demoWork is about how many bytes the demo digests, in rounds when the files have less. Else no element of a small
	// folder would last long enough to be interrupted.
	demoWork = 1 << 30
	// demoRound is how many bytes could be digested in the time that a round costs even for an empty file.
	demoRound = 8 << 10
)

// roundsFor is how often each file is digested.
func roundsFor(folder string, files []string) (int, error) {
	total := int64(0)
	for _, path := range files {
		info, err := os.Stat(filepath.Join(folder, path))
		if err != nil {
			return 0, err
		}
		total += info.Size() + demoRound
	}
	return int(min(max(1, demoWork/total), checksum.MaxRounds)), nil
}

// localSums digests the files in this process.
func localSums(ctx context.Context, folder string, files []string, rounds int) ([]checksum.Sum, error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	sums := make([]checksum.Sum, len(files))
	errs := make([]error, len(files))
	parallel.Each(len(files), runtime.GOMAXPROCS(0), func(i int) {
		sums[i], errs[i] = checksum.File(ctx, root, files[i], rounds)
	})
	return sums, errors.Join(errs...)
}

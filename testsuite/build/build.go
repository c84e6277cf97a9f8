// Package build builds mainstay and mainstay-server for the tests that run them.
package build

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
)

// Env names a program that is built already. `make test` builds one for all packages; go test alone builds one for
// each.
const Env = "MAINSTAY_PROGRAM"

// Program returns the path of mainstay as this checkout has it: the one that Env names, or one built in dir. The
// program that it starts is beside it.
func Program(dir string) (string, error) {
	if path := os.Getenv(Env); path != "" {
		return path, nil
	}
	return filepath.Join(dir, "mainstay"), Programs(dir)
}

// Programs builds mainstay and mainstay-server in dir. The flags are further ones of go build.
func Programs(dir string, flags ...string) error {
	args := slices.Concat([]string{"build", "-ldflags", "-s -w", "-o", dir + "/"}, flags,
		[]string{"mainstay.dev/mainstay/cmd/mainstay", "mainstay.dev/mainstay/cmd/mainstay-server"})
	return Go(args...)
}

// Bench returns the path of mainstay-bench beside the program, which it starts. Where Env names a program, it is there
// already.
func Bench(program string) (string, error) {
	path := filepath.Join(filepath.Dir(program), "mainstay-bench")
	if os.Getenv(Env) != "" {
		return path, nil
	}
	return path, Go("build", "-ldflags", "-s -w", "-o", path, "mainstay.dev/mainstay/cmd/mainstay-bench")
}

// Go runs the go command; its error holds what it printed. Programs need no C library, so that they run in any image.
func Go(args ...string) error {
	command := exec.Command("go", args...)
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("go %v: %w\n%s", args, err, output)
	}
	return nil
}

// Image is an archive with an image of one static program, as docker save writes it.
func Image(program, name string) ([]byte, error) {
	data, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	layer := archive(map[string][]byte{"agent": data})
	config := fmt.Appendf(nil, `{"architecture":%q,"os":"linux","config":{"Entrypoint":["/agent"],"User":"65532"},`+
		`"rootfs":{"type":"layers","diff_ids":["sha256:%x"]}}`, runtime.GOARCH, sha256.Sum256(layer))
	manifest := fmt.Appendf(nil, `[{"Config":"config.json","RepoTags":[%q],"Layers":["layer.tar"]}]`, name)
	return archive(map[string][]byte{"layer.tar": layer, "config.json": config, "manifest.json": manifest}), nil
}

func archive(files map[string][]byte) []byte {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for name, data := range files { // a buffer takes everything
		_ = w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(data))})
		_, _ = w.Write(data)
	}
	_ = w.Close()
	return archive.Bytes()
}

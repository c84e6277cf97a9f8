package app

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// findProgram finds another program of this installation: beside this one, else in the PATH.
func findProgram(name string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this program's file, to start %s beside it: %w", name, err)
	}
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	folders := []string{filepath.Dir(self)}
	if real, err := filepath.EvalSymlinks(self); err == nil {
		folders = append(folders, filepath.Dir(real))
	}
	for _, folder := range folders {
		program := filepath.Join(folder, name)
		if info, err := os.Stat(program); err == nil && !info.IsDir() {
			return program, nil
		}
	}
	program, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("the program %s is neither in %s nor in the PATH: put it beside %s; `make build` builds both",
			name, folders[0], filepath.Base(self))
	}
	return program, nil
}

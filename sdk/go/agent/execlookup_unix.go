//go:build unix

package agent

import (
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"
)

// defaultPath is where programs are looked for without a PATH.
const defaultPath = "/usr/local/bin:/usr/bin:/bin"

// find finds the command's program in the PATH of its own environment. As for execvp, an entry that is relative or
// empty counts from the command's directory, and a name with a slash is a path.
func find(cmd *exec.Cmd) error {
	cmd.Err, cmd.Path = nil, cmd.Args[0]
	name, path := cmd.Args[0], defaultPath
	if strings.Contains(name, "/") {
		return nil
	}
	for _, entry := range cmd.Env {
		if value, is := strings.CutPrefix(entry, "PATH="); is {
			path = value
		}
	}
	unusable := ""
	for folder := range strings.SplitSeq(path, ":") {
		if folder == "" {
			folder = "."
		}
		candidate := strings.TrimSuffix(folder, "/") + "/" + name
		file := within(cmd.Dir, candidate)
		info, err := os.Stat(file)
		switch {
		case err != nil || info.IsDir():
		case unix.Access(file, unix.X_OK) == nil:
			cmd.Path = candidate
			return nil
		case unusable == "":
			unusable = candidate
		}
	}
	if problem := folderProblem(cmd.Dir); problem != nil {
		return problem
	}
	if unusable != "" {
		return cannotStart("%q is not executable: make it so with chmod +x", unusable)
	}
	if hint := shellHint(name); hint != "" {
		return cannotStart("there is no program %q: %s", name, hint)
	}
	return cannotStart("there is no program %q in its PATH (%s)", name, path)
}

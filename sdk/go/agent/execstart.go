package agent

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
)

// errCannotStart is a command that cannot start on this agent, however often it is tried.
type errCannotStart struct{ why string }

func (e errCannotStart) Error() string { return "the command cannot be run on this agent: " + e.why }

func cannotStart(format string, args ...any) error {
	return errCannotStart{fmt.Sprintf(format, args...)}
}

// neverHold are the failures of a start that say something about the command itself, or the agent's machine.
var neverHold = []error{
	syscall.ENOENT, syscall.EACCES, syscall.EPERM, syscall.ENOEXEC, syscall.E2BIG, syscall.ENOTDIR, syscall.EISDIR,
	syscall.ELOOP, syscall.ENAMETOOLONG, syscall.EINVAL, exec.ErrNotFound, exec.ErrDot,
}

// whyNot turns the failure to start a command into a cause that a person can act on. Failures that may pass, such as
// too many processes, stay as they are.
func whyNot(cmd *exec.Cmd, err error) error {
	known := errCannotStart{}
	if errors.As(err, &known) {
		return known
	}
	for _, never := range neverHold {
		if errors.Is(err, never) {
			return whyNever(cmd, err)
		}
	}
	return err
}

func whyNever(cmd *exec.Cmd, err error) error {
	if problem := folderProblem(cmd.Dir); problem != nil {
		return problem
	}
	path := within(cmd.Dir, cmd.Path)
	info, missing := os.Stat(path)
	switch {
	case errors.Is(err, syscall.E2BIG):
		return cannotStart("its arguments and variables are too long together: hand long data on in a file")
	case errors.Is(err, syscall.ENOENT) && missing != nil:
		if to, err := os.Readlink(path); err == nil {
			return cannotStart("%q is a link to %q, which does not exist", cmd.Path, to)
		}
		return noFile(cmd)
	case missing != nil:
	case info.IsDir():
		return cannotStart("%q is a directory, not a program", cmd.Path)
	case errors.Is(err, syscall.EACCES) && info.Mode()&0o111 == 0:
		return cannotStart("%q is not executable: make it so with chmod +x, or name its interpreter, as in [\"sh\", %q]",
			cmd.Path, cmd.Path)
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ENOEXEC), errors.Is(err, syscall.EACCES):
		return unfit(cmd.Path, path, err)
	}
	return cannotStart("%v", err)
}

// noFile says that a command's file is not there: as it is written, and where it was looked for.
func noFile(cmd *exec.Cmd) error {
	folder := cmd.Dir
	switch hint := shellHint(cmd.Path); {
	case hint != "":
		return cannotStart("there is no file %q: %s", cmd.Path, hint)
	case filepath.IsAbs(cmd.Path):
		return cannotStart("there is no file %q", cmd.Path)
	case folder == "":
		folder, _ = os.Getwd() // empty: even its name is not known
		return cannotStart("there is no file %q in %q, where this agent runs: give the whole path, or dir", cmd.Path, folder)
	}
	return cannotStart("there is no file %q in its directory %q", cmd.Path, folder)
}

// shellWords are words that a shell knows itself.
var shellWords = strings.Fields("cd export source . alias set unset ulimit eval exec exit if for while")

// shellHint explains the name of a program that only a shell would understand; "": it is a name like others.
func shellHint(name string) string {
	variable, _, assigned := strings.Cut(name, "=")
	switch {
	case strings.ContainsAny(name, " \t\n"):
		return `it has blanks: give the program and each argument as a word of its own, or ["sh", "-c", …]`
	case unexpanded(name):
		return "no shell reads it: write out what it stands for"
	case assigned && !strings.Contains(variable, "/"):
		return "no shell reads it: set the variable " + variable + " with env"
	case slices.Contains(shellWords, name):
		return fmt.Sprintf(`only a shell knows it: ["sh", "-c", "%s …"]`, name)
	}
	return ""
}

// unexpanded reports whether a path has what a shell would replace.
func unexpanded(path string) bool { return strings.HasPrefix(path, "~") || strings.Contains(path, "$") }

// folderProblem checks the directory of a command.
func folderProblem(dir string) error {
	if dir == "" {
		return nil
	}
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, os.ErrNotExist) && unexpanded(dir):
		return cannotStart("its directory %q does not exist: no shell reads it: write out what it stands for", dir)
	case errors.Is(err, os.ErrNotExist):
		return cannotStart("its directory %q does not exist", dir)
	case err != nil:
		return cannotStart("its directory %q cannot be entered: %v", dir, errors.Unwrap(err))
	case !info.IsDir():
		return cannotStart("its directory %q is no directory", dir)
	}
	return nil
}

// unfit says why the system does not run a file that is there.
func unfit(name, path string, err error) error {
	begin := beginOf(path)
	interpreter, script := shebang(begin)
	switch {
	case endsWithCR(begin):
		return cannotStart("the first line of the script %q ends with CR LF: convert it with dos2unix", name)
	case script && !errors.Is(err, syscall.ENOEXEC):
		return cannotStart("the first line of %q names the interpreter %q, which is not there or may not be executed", name,
			interpreter)
	case errors.Is(err, syscall.EACCES):
		return cannotStart("this agent's user may not execute %q, or its file system is mounted with noexec", name)
	case errors.Is(err, syscall.ENOENT):
		return cannotStart("%q needs a loader that is not there: it is built for another system, such as one with "+
			"another libc", name)
	case begin == "":
		return cannotStart("%q is empty", name)
	case strings.HasPrefix(begin, "\ufeff"):
		return cannotStart("%q begins with a byte order mark: remove it, so that #! is its beginning", name)
	case strings.ContainsRune(begin, 0):
		return cannotStart("%q is no program for this machine (%s/%s)", name, runtime.GOOS, runtime.GOARCH)
	case !script:
		return cannotStart("%q has no line such as #!/bin/sh at its beginning: add one, or name its interpreter, as in "+
			"[\"sh\", %q]", name, name)
	}
	return cannotStart("%q: %v", name, err)
}

// noInterpreter reports whether a script ended because the program that its first line has run, mostly env, found no
// interpreter whose name ends with a carriage return.
func noInterpreter(cmd *exec.Cmd, end commandEnd) bool {
	return (end.code == 126 || end.code == 127) && endsWithCR(beginOf(within(cmd.Dir, cmd.Path)))
}

// within is a path as a command sees it that runs in a directory.
func within(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// beginOf is the beginning of a file; empty where it cannot be read.
func beginOf(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	begin := make([]byte, 512)
	n, _ := f.Read(begin)
	return string(begin[:n])
}

// shebang is the interpreter that a script's first line names.
func shebang(begin string) (interpreter string, is bool) {
	line, _, _ := strings.Cut(begin, "\n")
	rest, is := strings.CutPrefix(line, "#!")
	interpreter, _, _ = strings.Cut(strings.TrimLeft(rest, " \t"), " ")
	return interpreter, is
}

// endsWithCR reports whether a script's first line ends with CR LF.
func endsWithCR(begin string) bool {
	line, _, ended := strings.Cut(begin, "\n")
	return ended && strings.HasPrefix(line, "#!") && strings.HasSuffix(line, "\r")
}

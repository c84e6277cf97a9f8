package proctree

import (
	"errors"
	"os"
	"strconv"
	"syscall"
)

// cgroup is the folder of a cgroup (version 2) for one command's tree, or "" where there is none.
type cgroup string

// cgroupOf names the cgroup for the tree of a guard, by its process id, below another cgroup's folder; "" without one.
func cgroupOf(below string, guard int) cgroup {
	if below == "" {
		return ""
	}
	return cgroup(below + "/" + Name + "-" + strconv.Itoa(guard))
}

func makeCgroup(below string, guard int) cgroup {
	c := cgroupOf(below, guard)
	if c == "" {
		return ""
	}
	err := os.Mkdir(string(c), 0o755)
	if errors.Is(err, os.ErrExist) { // left by a guard that was killed together with its agent
		c.kill()
		err = nil
	}
	if err != nil {
		return "" // read-only, or not this user's
	}
	return c
}

func (c cgroup) open() (*os.File, error) {
	if c == "" {
		return nil, os.ErrNotExist
	}
	return os.Open(string(c))
}

// kill kills all processes in it, at once. Kernels before 5.14 cannot.
func (c cgroup) kill() {
	if c != "" {
		_ = os.WriteFile(string(c)+"/cgroup.kill", []byte("1"), 0) // the processes are killed one by one as well
	}
}

// remove removes it with what was made below it. It reports false while a process is in it.
func (c cgroup) remove() bool {
	if c == "" || !errors.Is(syscall.Rmdir(string(c)), syscall.EBUSY) {
		return true
	}
	if c.populated() {
		return false
	}
	entries, _ := os.ReadDir(string(c)) // what cannot be removed stays: nothing lives in it
	for _, e := range entries {
		if e.IsDir() {
			cgroup(string(c) + "/" + e.Name()).remove()
		}
	}
	_ = syscall.Rmdir(string(c))
	return true
}

// populated reports whether a process lives in it or below.
func (c cgroup) populated() bool {
	for _, line := range lines(string(c) + "/cgroup.events") {
		if line == "populated 0" {
			return false
		}
	}
	return true
}

// ownCgroup is the folder of the calling process's cgroup, which a guard inherits; "" where no file system of cgroups
// is mounted.
func ownCgroup() string {
	path := ""
	for _, line := range lines("/proc/self/cgroup") { // "0::/path"
		if len(line) > 3 && line[:3] == "0::" {
			path = line[3:]
		}
	}
	if path == "" {
		return ""
	}
	for _, line := range lines("/proc/self/mountinfo") { // "36 35 0:30 root folder options … - cgroup2 …"
		fields := words(line)
		for i, field := range fields {
			if field != "-" || i < 6 || i+1 >= len(fields) || fields[i+1] != "cgroup2" {
				continue
			}
			root, folder := fields[3], fields[4]
			switch {
			case root == "/":
				return folder + path
			case len(path) >= len(root) && path[:len(root)] == root:
				return folder + path[len(root):]
			}
		}
	}
	return ""
}

func lines(file string) (list []string) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	from := 0
	for i, b := range text {
		if b == '\n' {
			list, from = append(list, string(text[from:i])), i+1
		}
	}
	return list
}

package proctree

import (
	"os"
	"strconv"
	"syscall"
	"time"
)

// KillLeft kills what a killed guard has left: its cgroup's processes, or without a cgroup its session's. Call it
// before you wait for the guard, so that its process id is not reused. It returns when nothing is left, or after a
// while with true: what cannot be killed lives on.
func KillLeft(guard int) (left bool) {
	group := cgroupOf(ownCgroup(), guard)
	return livesOn(func() bool {
		group.kill()
		inSession := signalSession(guard, syscall.SIGKILL) > 0
		return !group.remove() || inSession
	})
}

// KillBelow kills all descendants of a guard that does not act. It is the nearest subreaper, so they stay its
// descendants whoever of them ends first. It returns as KillLeft does.
func KillBelow(guard int) (left bool) {
	group := cgroupOf(ownCgroup(), guard)
	return livesOn(func() bool {
		group.kill() // also what this user may not kill
		below := Below(guard, nil)[1:]
		for _, pid := range below {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		return len(below) > 0
	})
}

// Below are a process and its descendants, without some of these and their descendants.
func Below(pid int, without map[int]bool) []int {
	below, found := map[int]bool{pid: true}, []int{pid}
	list := processes()
	for grown := true; grown; {
		grown = false
		for _, p := range list {
			if below[p.parent] && !below[p.pid] && !without[p.pid] {
				below[p.pid], grown = true, true
				found = append(found, p.pid)
			}
		}
	}
	return found
}

// killLimit bounds how long KillLeft and KillBelow try.
const killLimit = time.Second

// livesOn kills until nothing is left, or until it has tried for long enough: then it reports true.
func livesOn(kill func() (left bool)) bool {
	began := time.Now()
	for wait := time.Millisecond; kill(); wait = min(2*wait, 50*time.Millisecond) {
		if time.Since(began) > killLimit {
			return true
		}
		time.Sleep(wait)
	}
	return false
}

// process has facts about a process from /proc.
type process struct{ pid, parent, group, session int }

// killBelow kills the children of a process.
func killBelow(parent int) {
	for _, p := range processes() {
		if p.parent == parent {
			_ = syscall.Kill(p.pid, syscall.SIGKILL)
		}
	}
}

// signalSession signals the process groups of a guard's session except the guard, and returns their number.
func signalSession(guard int, s syscall.Signal) int {
	groups := map[int]bool{}
	for _, p := range processes() {
		if p.session == guard && p.pid != guard && !groups[p.group] {
			groups[p.group] = true
			_ = syscall.Kill(-p.group, s)
		}
	}
	return len(groups)
}

// processes returns the machine's processes that have not ended.
func processes() []process {
	folder, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer func() { _ = folder.Close() }()
	names, _ := folder.Readdirnames(-1) // use what was read
	list := make([]process, 0, len(names))
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, lives := readProcess(pid); lives {
			list = append(list, p)
		}
	}
	return list
}

// readProcess reads "pid (name) state parent group session …"; the name may have any byte but is the last with a ')'.
func readProcess(pid int) (process, bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, false
	}
	at := len(stat) - 1
	for at >= 0 && stat[at] != ')' {
		at--
	}
	fields := words(string(stat[at+1:]))
	if len(fields) < 4 || fields[0] == "Z" || fields[0] == "X" {
		return process{}, false
	}
	p := process{pid: pid}
	for i, to := range []*int{&p.parent, &p.group, &p.session} {
		if *to, err = strconv.Atoi(fields[1+i]); err != nil {
			return process{}, false
		}
	}
	return p, true
}

// words splits at spaces.
func words(text string) (list []string) {
	from := 0
	for i := 0; i <= len(text); i++ {
		if i == len(text) || text[i] == ' ' || text[i] == '\n' {
			if i > from {
				list = append(list, text[from:i])
			}
			from = i + 1
		}
	}
	return list
}

const (
	// leftGrace is how long what a child has started may take to end by itself: guards, which end their commands.
	leftGrace = 100 * time.Millisecond
	// leftLimit bounds how long it may live although it is killed.
	leftLimit = 5 * time.Second
)

// AwaitChild waits for the end of a child of this process, which must be the parent of orphans below it and have no
// other children. Then it ends what the child has left. left: something lives nevertheless.
func AwaitChild(child int) (status syscall.WaitStatus, left bool) {
	for {
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if pid == child || err != nil && err != syscall.EINTR {
			break
		}
	}
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		switch lived := time.Since(began); {
		case err == syscall.ECHILD:
			return status, false
		case pid > 0:
		case lived > leftLimit:
			return status, true
		case lived > leftGrace:
			killBelow(os.Getpid())
		}
	}
}

package agent

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"mainstay.dev/sdk/agent/proctree"
)

// listeners finds the sockets that listen on a port of this host, and which are the instance's own. known is false when
// a process of the instance, such as one of another user, does not show its sockets.
func (at *attempt) listeners(port int) (found []listener, known bool) {
	sockets, known := map[string]bool{}, true
	for _, pid := range at.processes() {
		folder := "/proc/" + strconv.Itoa(pid) + "/fd/"
		files, err := os.ReadDir(folder)
		known = known && !errors.Is(err, fs.ErrPermission)
		for _, f := range files {
			if to, err := os.Readlink(folder + f.Name()); err == nil && strings.HasPrefix(to, "socket:[") {
				sockets[strings.TrimSuffix(to[len("socket:["):], "]")] = true
			}
		}
	}
	for _, table := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		text, err := os.ReadFile(table)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, false
		}
		for line := range bytes.Lines(text) {
			if l, inode, ok := readListener(line, port); ok {
				l.own = sockets[inode]
				found = append(found, l)
			}
		}
	}
	return found, known || slices.ContainsFunc(found, func(l listener) bool { return l.own })
}

// processes are the instance's: a command's tree, else the agent's own without its commands' trees.
func (at *attempt) processes() []int {
	if guard := at.guard.Load(); guard != 0 {
		return proctree.Below(int(guard), nil)
	}
	commands := map[int]bool{}
	at.run.mu.Lock()
	for _, other := range at.run.attempts {
		commands[int(other.guard.Load())] = true
	}
	at.run.mu.Unlock()
	return proctree.Below(os.Getpid(), commands)
}

// readListener reads "sl local:port remote:port state … inode" of a socket that listens on a port. The kernel writes
// addresses in hex, each four bytes in the machine's order, which is the little one wherever agents run.
func readListener(line []byte, port int) (l listener, inode string, ok bool) {
	const listens = "0A"
	fields := strings.Fields(string(line))
	if len(fields) < 10 || fields[3] != listens {
		return l, "", false
	}
	address, number, _ := strings.Cut(fields[1], ":")
	if n, err := strconv.ParseUint(number, 16, 16); err != nil || int(n) != port {
		return l, "", false
	}
	raw, err := hex.DecodeString(address)
	if err != nil {
		return l, "", false
	}
	for word := range slices.Chunk(raw, 4) {
		slices.Reverse(word)
	}
	a, ok := netip.AddrFromSlice(raw)
	return listener{at: a.Unmap()}, fields[9], ok
}

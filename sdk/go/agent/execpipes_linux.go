package agent

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"sync"
	"syscall"
)

// pipes are the reading ends of a command's stdout and stderr. Two pipes do not show in which order they were written
// to, so reading one reads the other too: lines that were there at once are taken in turn.
type pipes struct {
	ends    [2]*os.File
	writers [2]int // the command's ends, in which it waits when they are full
	to      [2]io.Writer
	mu      sync.Mutex
	read    [2][]byte // buffers for reading
}

// pipeRoom is what a pipe holds.
const pipeRoom = 64 << 10

func newPipes(stdout, stderr io.Writer, room [2][]byte) (*pipes, error) {
	p := &pipes{to: [2]io.Writer{stdout, stderr}, read: room}
	for i := range p.ends {
		var ends [2]int
		if err := syscall.Pipe2(ends[:], syscall.O_CLOEXEC); err != nil {
			p.close()
			closeAll(p.writers[:i])
			return nil, os.NewSyscallError("pipe2", err)
		}
		_ = syscall.SetNonblock(ends[0], true) // so that closing it ends a reading
		p.ends[i], p.writers[i] = os.NewFile(uintptr(ends[0]), "|0"), ends[1]
	}
	return p, nil
}

func closeAll(files []int) {
	for _, f := range files {
		_ = syscall.Close(f)
	}
}

func (p *pipes) close() {
	for _, end := range p.ends {
		_ = end.Close() // nil is no file, and says so
	}
}

// copyAll copies until nobody can write any more, or the pipes are closed. Text read before counts.
func (p *pipes) copyAll() {
	var copying sync.WaitGroup
	for i := range p.ends {
		copying.Go(func() { p.copy(i) })
	}
	copying.Wait()
}

// copy copies what comes through a pipe, and each time also what the other one has.
func (p *pipes) copy(i int) {
	own, err := p.ends[i].SyscallConn()
	other, err2 := p.ends[1-i].SyscallConn()
	if errors.Join(err, err2) != nil {
		return
	}
	for ended := false; !ended; {
		err := own.Read(func(fd uintptr) (done bool) {
			p.mu.Lock()
			defer p.mu.Unlock()
			n, err := readNow(fd, p.read[i])
			if errors.Is(err, syscall.EAGAIN) {
				return false // wait until there is more
			}
			ended = n <= 0
			m := 0
			_ = other.Control(func(fd uintptr) { m, _ = readNow(fd, p.read[1-i]) }) // its end is seen by its own reader
			var have [2][]byte
			have[i], have[1-i] = p.read[i][:max(0, n)], p.read[1-i][:max(0, m)]
			inTurn(have, p.to)
			return true
		})
		ended = ended || err != nil
	}
}

func readNow(fd uintptr, into []byte) (int, error) {
	for {
		n, err := syscall.Read(int(fd), into)
		if !errors.Is(err, syscall.EINTR) {
			return n, err
		}
	}
}

// inTurn writes the lines of two texts in turn, in proportion to their numbers.
func inTurn(texts [2][]byte, to [2]io.Writer) {
	lines := [2][][]byte{}
	for i, text := range texts {
		if len(texts[1-i]) == 0 {
			lines[i] = [][]byte{text}
			continue
		}
		lines[i] = slices.Collect(bytes.Lines(text))
	}
	of := [2]int{len(lines[0]), len(lines[1])}
	for at := [2]int{}; at != of; {
		next := 1
		if at[0] < of[0] && (at[0]+1)*of[1] <= (at[1]+1)*of[0] {
			next = 0
		}
		_, _ = to[next].Write(lines[next][at[next]]) // to memory
		at[next]++
	}
}

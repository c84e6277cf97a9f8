package proctree

import (
	"errors"
	"io"
	"os"
	"strconv"
	"syscall"
	"time"
	"unsafe"
)

// Name is the guard's argv[0], by which the program recognises that it is a guard. It has no other arguments.
const Name = "mainstay-exec-guard"

// AgentGone is the signal that the guard gets from the kernel when the agent ends, and when the thread that started it
// does. The guard sees the agent's end by the socket; the signal resumes a guard that its command has stopped.
const AgentGone = syscall.SIGCONT

// Socket is the guard's file descriptor of the socket to the agent. No other process has an end of it, so each side
// notices the other's death.
const Socket = 3

// Command is a command that the guard starts: a program, its arguments (the first is its name), folder and environment.
// Scratch is a folder that the guard removes at the end if the agent has ended before it; empty: none.
type Command struct {
	Path, Dir, Scratch string
	Args, Env          []string
}

// The orders on the socket. The end of the stream is an order to kill too.
const (
	orderStart     = 'S' // start a command: its length in 4 bytes, texts; with it come the files of stdout and stderr
	orderTerminate = 'T' // SIGTERM to the process groups of the command's session
	orderKill      = 'K' // SIGKILL to the whole tree
	orderLease     = 'L' // kill at a time: 8 bytes, nanoseconds of CLOCK_MONOTONIC; it replaces the previous one
)

// The reports of the guard: a letter and 4 bytes.
const (
	reportFailed     = 'F' // the command cannot be started; the number is an errno
	reportEnded      = 'E' // the command has ended; the number is its wait status
	reportEmpty      = 'D' // nothing of its tree is left; the last message about it
	reportEndedEmpty = 'B' // both at once
)

// Report is one message of the guard about a command. The first is Failed or Ended, unless the guard is killed; Empty
// is the last.
type Report struct {
	Failed syscall.Errno // not 0: the command cannot be started
	Ended  bool          // the command has ended with Status
	Status syscall.WaitStatus
	Empty  bool // nothing of the command's tree is left
}

// Start is the message that starts a command, once the one before is Empty; Send sends it. Texts with zero bytes are
// refused.
func (c *Command) Start() ([]byte, error) {
	fields := append([]string{c.Path, c.Dir, c.Scratch, strconv.Itoa(len(c.Args))},
		append(c.Args[:len(c.Args):len(c.Args)], c.Env...)...)
	const head = 5
	body := make([]byte, head, 4<<10)
	for _, field := range fields {
		for i := range len(field) {
			if field[i] == 0 {
				return nil, syscall.EINVAL
			}
		}
		body = append(append(body, field...), 0)
	}
	body[0] = orderStart
	putUint(body[1:head], uint64(len(body)-head))
	return body, nil
}

// Send sends the message that starts a command, and orders that follow it, with the files of its stdout and stderr.
func Send(to *os.File, start []byte, output [2]int) error {
	raw, err := to.SyscallConn()
	if err != nil {
		return err
	}
	n := 0
	waited := raw.Write(func(fd uintptr) (done bool) {
		n, err = syscall.SendmsgN(int(fd), start, syscall.UnixRights(output[:]...), nil, syscall.MSG_NOSIGNAL)
		return !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.EINTR)
	})
	if waited != nil || err != nil {
		return errors.Join(waited, err)
	}
	_, err = to.Write(start[n:])
	return err
}

// Terminate is the order to send SIGTERM to the whole tree. It and the orders below may follow the start; without a
// command they do nothing.
func Terminate() []byte { return []byte{orderTerminate} }

// Kill is the order to kill the whole tree at once.
func Kill() []byte { return []byte{orderKill} }

// Lease is the order to kill the whole tree at a time of Monotonic; it replaces the previous one.
func Lease(end time.Duration) []byte {
	message := make([]byte, 9)
	message[0] = orderLease
	putUint(message[1:], uint64(end)) //nolint:gosec // a time since the machine's start is not negative
	return message
}

// Monotonic is the time since the machine's start, the same in all processes.
func Monotonic() time.Duration {
	var now syscall.Timespec
	const clockMonotonic = 1
	// never fails
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&now)), 0)
	return time.Duration(now.Nano())
}

// ReadReport reads the guard's next message; io.EOF after the last.
func ReadReport(from io.Reader) (Report, error) {
	var message [5]byte
	if _, err := io.ReadFull(from, message[:]); err != nil {
		return Report{}, err
	}
	number := uint32(getUint(message[1:])) //nolint:gosec // of 4 bytes
	switch message[0] {
	case reportFailed:
		return Report{Failed: syscall.Errno(number)}, nil
	case reportEnded:
		return Report{Ended: true, Status: syscall.WaitStatus(number)}, nil
	case reportEmpty:
		return Report{Empty: true}, nil
	case reportEndedEmpty:
		return Report{Ended: true, Status: syscall.WaitStatus(number), Empty: true}, nil
	}
	return Report{}, errors.New("the guard process sent something unknown")
}

// report returns false when the agent is gone.
func report(to *os.File, kind byte, number uint32) bool {
	message := make([]byte, 5)
	message[0] = kind
	putUint(message[1:], uint64(number))
	_, err := to.Write(message)
	return err == nil
}

func readCommand(from io.Reader) (Command, error) {
	var c Command
	head := make([]byte, 4)
	if _, err := io.ReadFull(from, head); err != nil {
		return c, err
	}
	body := make([]byte, getUint(head))
	if _, err := io.ReadFull(from, body); err != nil {
		return c, err
	}
	var fields []string
	for at, i := 0, 0; i < len(body); i++ {
		if body[i] == 0 {
			fields, at = append(fields, string(body[at:i])), i+1
		}
	}
	if len(fields) < 4 {
		return c, syscall.EINVAL
	}
	n, err := strconv.Atoi(fields[3])
	if err != nil || n < 0 || n > len(fields)-4 {
		return c, syscall.EINVAL
	}
	c.Path, c.Dir, c.Scratch, c.Args, c.Env = fields[0], fields[1], fields[2], fields[4:4+n], fields[4+n:]
	return c, nil
}

// order is one of the agent's messages.
type order struct {
	kind    byte
	at      time.Duration // of a lease
	command Command       // of a start
	files   []int         // of a start: stdout and stderr
}

// inbox reads the agent's socket, and keeps the files that come with the messages.
type inbox struct {
	socket int
	files  []int
}

func (i *inbox) Read(into []byte) (int, error) {
	var beside [64]byte
	for {
		n, m, _, _, err := syscall.Recvmsg(i.socket, into, beside[:], syscall.MSG_CMSG_CLOEXEC)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err == nil && n == 0 {
			err = io.EOF
		}
		messages, _ := syscall.ParseSocketControlMessage(beside[:m])
		for j := range messages {
			files, _ := syscall.ParseUnixRights(&messages[j])
			i.files = append(i.files, files...)
		}
		return n, err
	}
}

// await waits until there is something to read, and returns true; or until a process has ended, by its handle (-1:
// none), a child has ended, or for so long at most.
func (i *inbox) await(handle int, wait time.Duration) bool {
	const readable = 1
	type file struct {
		fd             int32
		events, became int16
	}
	files := [...]file{{fd: int32(i.socket), events: readable}, {fd: int32(handle), events: readable}}
	limit := syscall.NsecToTimespec(int64(max(0, wait)))
	// The signal of a child's end interrupts it, unless that comes too early.
	_, _, errno := syscall.Syscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&files)), uintptr(len(files)),
		uintptr(unsafe.Pointer(&limit)), 0, 0, 0)
	return errno == 0 && files[0].became != 0
}

// readOrder reads the agent's next order; an error when the agent has ended.
func readOrder(from *inbox) (order, error) {
	message := make([]byte, 9)
	_, err := io.ReadFull(from, message[:1])
	o := order{kind: message[0]}
	switch {
	case err != nil:
	case o.kind == orderLease:
		_, err = io.ReadFull(from, message[1:])
		o.at = time.Duration(getUint(message[1:])) //nolint:gosec // as Lease wrote it
	case o.kind == orderStart:
		o.command, err = readCommand(from)
		o.files, from.files = from.files, nil
		if err == nil && len(o.files) != 2 {
			err = syscall.EINVAL
		}
	}
	return o, err
}

func closeAll(files []int) {
	for _, f := range files {
		_ = syscall.Close(f)
	}
}

func putUint(to []byte, n uint64) {
	for i := range to {
		to[i] = byte(n >> (8 * i))
	}
}

func getUint(from []byte) (n uint64) {
	for i, b := range from {
		n |= uint64(b) << (8 * i)
	}
	return n
}

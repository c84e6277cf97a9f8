package mcptool

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// endPatience is how long a program may take to end after its input was closed, and again after SIGTERM.
	endPatience = 5 * time.Second
	// explainPatience is how long an error waits for the end of the program that it is about.
	explainPatience = 2 * time.Second
	// maxStderr bounds how much of the end of a program's standard error is kept, in bytes.
	maxStderr = 1 << 10
	// maxSkipped bounds the lines of one program that are logged, and maxSkippedLine each of them, in bytes.
	maxSkipped     = 20
	maxSkippedLine = 200
)

// program is a server of tools that is started here, and speaks over its standard input and output. It is an
// mcp.Transport for one connection.
type program struct {
	command *exec.Cmd
	log     *slog.Logger

	stderr tail
	wait   func() error  // waits for the end once
	ended  chan struct{} // closed at the end
	err    error         // of the end
}

// Connect implements mcp.Transport.
func (p *program) Connect(ctx context.Context) (mcp.Connection, error) {
	stdout, err := p.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	stdin, err := p.command.StdinPipe()
	if err != nil {
		return nil, err
	}
	// Its children may keep its standard error open.
	p.command.Stderr, p.command.WaitDelay = &p.stderr, time.Second
	if err := p.command.Start(); err != nil {
		return nil, &startError{err}
	}
	p.wait = sync.OnceValue(func() error {
		defer close(p.ended)
		p.err = p.command.Wait()
		return p.err
	})
	lines := bufio.NewScanner(stdout)
	lines.Buffer(nil, mcp.DefaultMaxLineLength)
	return (&mcp.IOTransport{
		Reader: io.NopCloser(&messages{lines: lines, log: p.log}), // its input ends it
		Writer: &programInput{stdin, p},
	}).Connect(ctx)
}

// startError says why a program could not be started.
type startError struct{ error }

// programInput is a program's input. Closing it ends the program.
type programInput struct {
	io.WriteCloser
	program *program
}

// Close implements io.Closer.
func (i *programInput) Close() error {
	_ = i.WriteCloser.Close()
	go func() { _ = i.program.wait() }()
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		select {
		case <-i.program.ended:
			return nil
		case <-time.After(endPatience):
			_ = i.program.command.Process.Signal(signal)
		}
	}
	<-i.program.ended
	return nil
}

// explain says of an error how the program ended, if it did.
func (p *program) explain(err error) error {
	if _, never := errors.AsType[*startError](err); p == nil || never || errors.Is(err, context.Canceled) {
		return err
	}
	select {
	case <-p.ended:
	case <-time.After(explainPatience):
		return err
	}
	how := "exit status 0"
	if p.err != nil {
		how = p.err.Error()
	}
	text := "the server of tools ended with " + how
	if said := p.stderr.text(); said != "" {
		text += "; its standard error ended with: " + said
	}
	return fmt.Errorf("%s: %w", text, err)
}

// messages are the messages among the lines of a program. Other lines, such as a banner or its log, are logged and
// skipped.
type messages struct {
	lines   *bufio.Scanner
	log     *slog.Logger
	rest    []byte // of the present message
	skipped int
}

// Read implements io.Reader.
func (m *messages) Read(p []byte) (int, error) {
	for len(m.rest) == 0 {
		if !m.lines.Scan() {
			if err := m.lines.Err(); err != nil {
				return 0, err
			}
			return 0, io.EOF
		}
		line := bytes.TrimSpace(m.lines.Bytes())
		at := messageIn(line)
		m.skip(line[:at])
		if at < len(line) {
			m.rest = append(exact(bytes.Clone(line[at:])), '\n')
		}
	}
	n := copy(p, m.rest)
	m.rest = m.rest[n:]
	return n, nil
}

// messageIn is where a message begins in a line; its length: it has none. A text without a line end may precede it.
func messageIn(line []byte) int {
	at := max(0, bytes.Index(line, []byte(`{"jsonrpc"`)))
	var message struct {
		Version string `json:"jsonrpc"`
	}
	if json.Unmarshal(line[at:], &message) != nil || message.Version == "" {
		return len(line)
	}
	return at
}

func (m *messages) skip(text []byte) {
	if text = bytes.TrimSpace(text); len(text) == 0 || m.skipped > maxSkipped {
		return
	}
	if m.skipped++; m.skipped > maxSkipped {
		m.log.Warn("The server of tools goes on writing what are no messages; no more of it is logged")
		return
	}
	line := strings.ToValidUTF8(string(text[:min(len(text), maxSkippedLine)]), "")
	m.log.Warn("The server of tools writes what is no message to its standard output; it is skipped", "line", line)
}

// tail keeps the end of the text written to it.
type tail struct {
	mu   sync.Mutex
	data []byte
}

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.data = append(t.data, p[max(0, len(p)-maxStderr):]...)
	t.data = t.data[max(0, len(t.data)-maxStderr):]
	return len(p), nil
}

func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(strings.ToValidUTF8(string(t.data), ""))
}

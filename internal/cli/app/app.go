// Package app is what all commands share: the world outside, the client of the API, flags, output and exit codes. It
// knows no group of commands.
package app

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// App is the world outside, as commands see it.
type App struct {
	Version        string // of this program
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	StdoutTTY      bool
	Getenv         func(string) string
	Now            func() time.Time
	// Program finds the file of another program of this installation.
	Program func(name string) (string, error)

	output string // -o
	server string // --server
	access Access

	// AtForce is called when a person does not want to wait for a clean stop.
	AtForce atomic.Pointer[func()]
}

// CallerVersionEnv gives mainstay-server the version of the mainstay that started it.
const CallerVersionEnv = "MAINSTAY_CALLER_VERSION"

// New is the world of this process. version is the program's.
func New(version string) *App {
	return &App{
		Version: version, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, StdoutTTY: isTerminal(os.Stdout),
		Getenv: os.Getenv, Now: time.Now, Program: findProgram,
	}
}

// oneWish is how long signals count as one wish: a stop reaches a process twice where a group gets it as a whole and a
// parent passes it on, and who is in a hurry needs longer to press Ctrl-C again.
const oneWish = time.Second

// Signals returns a context that ends at the first SIGINT, SIGTERM or SIGHUP. Another one, a second later or more, ends
// the process.
func (a *App) Signals() (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	received := make(chan os.Signal, 2)
	signal.Notify(received, syscall.SIGINT, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // nohup ignores it
		signal.Notify(received, syscall.SIGHUP)
	}
	go func() {
		<-received
		first := time.Now()
		cancel()
		for range received {
			if time.Since(first) >= oneWish {
				break
			}
		}
		fmt.Fprintln(a.Stderr, "Stopping at once.")
		if force := a.AtForce.Load(); force != nil {
			(*force)()
		}
		os.Exit(ExitFailure)
	}()
	return ctx, func() { signal.Stop(received); cancel() }
}

// isTerminal reports whether a person is likely to watch the file.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// Print prints data as JSON, or calls text.
func (a *App) Print(data any, text func() error) error {
	if !a.JSON() {
		return text()
	}
	return a.encode(data, "  ")
}

// PrintLine prints data as JSON in one line.
func (a *App) PrintLine(data any) error { return a.encode(data, "") }

func (a *App) encode(data any, indent string) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", indent)
	if err := encoder.Encode(data); err != nil {
		return err
	}
	_, err := io.WriteString(a.Stdout, escapeUnprintable(text.String()))
	return err
}

// Say prints a line for people.
func (a *App) Say(line string) error {
	_, err := fmt.Fprintln(a.Stdout, line)
	return err
}

// Sayf prints a text for people.
func (a *App) Sayf(format string, args ...any) error {
	_, err := fmt.Fprintf(a.Stdout, format, args...)
	return err
}

// JSON reports whether data is printed as JSON.
func (a *App) JSON() bool { return a.output == "json" }

// Storyteller is where a long command reports its progress: with JSON, which must stay clean, on standard error.
func (a *App) Storyteller() io.Writer {
	if a.JSON() {
		return a.Stderr
	}
	return a.Stdout
}

// ProgramName is how a person has called this program.
func ProgramName() string {
	if name := os.Args[0]; strings.ContainsRune(name, os.PathSeparator) {
		return name
	}
	return "mainstay"
}

// HostName is the name of this machine; "host" where nobody has given it one.
func HostName() string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "host"
	}
	return name
}

// Slug makes an id of any text, of at most limit characters.
func Slug(text string, limit int) string {
	id := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '.', r == '_', r == '-':
			return r
		}
		return '-'
	}, strings.ToLower(text))
	if id = strings.TrimLeft(id, ".-_"); len(id) > limit {
		id = id[:limit]
	}
	if id == "" {
		return "host"
	}
	return id
}

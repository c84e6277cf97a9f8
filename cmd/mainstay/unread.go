package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// stopUnread has a command with processes of its own stop as after Ctrl-C when nobody reads its output any more, as with
// `| head -1`. Else the first line written then would end it on the spot, and leave its processes behind.
func (a *app) stopUnread(c *cobra.Command, _ []string) error {
	ctx, stop := context.WithCancel(c.Context())
	// Without this the kernel's signal ends the process, now or while it stops. It comes for connections to others too, so the
	// signal itself says nothing.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	a.stdout, a.stderr = &readOutput{a.stdout, stop}, &readOutput{a.stderr, stop}
	c.SetContext(ctx)
	return nil
}

// readOutput is an output that somebody reads, or else calls unread.
type readOutput struct {
	io.Writer
	unread func()
}

// Write implements io.Writer.
func (o *readOutput) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	if errors.Is(err, syscall.EPIPE) {
		o.unread()
	}
	return n, err
}

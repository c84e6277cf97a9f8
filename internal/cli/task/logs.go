package task

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/client"
)

const (
	// followHold is how long one request for a log waits for a line.
	followHold = 20 * time.Second
	// followPatience is how long following goes on trying when the control plane does not answer, as during a restart.
	followPatience = 30 * time.Second
	followRetry    = 500 * time.Millisecond
)

// logView is the command line of `task logs`, and where it is in the log.
type logView struct {
	app     *app.App
	server  *app.Client
	id      string
	follow  bool
	times   bool
	attempt int
	after   int64
	told    string // what was last said beside the log
	live    bool   // as the command itself would write it: nothing is said beside it
}

func logsCommand(a *app.App) *cobra.Command {
	v := &logView{app: a}
	command := a.Call(&cobra.Command{
		Use:   "logs [-f] ID",
		Short: "Show what a task writes, or has written",
		Long: `Show what a task writes: the output of its command, or the lines that its handler logs.

The newest 500 lines (64 KiB) of every attempt are kept as long as the task: --attempt chooses one. Of an attempt that
was lost with its agent, what the agent had sent is kept. With --follow, new lines are shown as they come, over all
attempts, until the task has ended or needs a person.`,
		Example: "  mainstay task logs -f t-06…\n  mainstay task logs --attempt 1 t-06…",
		Args:    app.Exactly("a task's id"),
	}, func(ctx context.Context, s *app.Client, args []string) error {
		v.server, v.id = s, args[0]
		if v.follow {
			s.Client = s.Once() // following has its own patience, and says when it needs it
			return v.followAll(ctx)
		}
		return v.showOnce(ctx)
	})
	flags := command.Flags()
	flags.BoolVarP(&v.follow, "follow", "f", false, "go on with new lines")
	flags.BoolVar(&v.times, "timestamps", false, "begin each line with its time, in UTC")
	flags.IntVar(&v.attempt, "attempt", 0, "which attempt (default: the one that runs, or else the last)")
	return command
}

func (v *logView) read(ctx context.Context, hold time.Duration) (*api.TaskLog, error) {
	query := client.LogQuery{After: v.after, Attempt: v.attempt, Wait: hold}
	log, err := v.server.Tasks.Log(ctx, v.id, query)
	if err == nil {
		return log, nil
	}
	id, err := fullID(ctx, v.server.Tasks, v.id, err)
	if err != nil {
		return nil, err
	}
	v.id = id
	return v.server.Tasks.Log(ctx, id, query)
}

func (v *logView) showOnce(ctx context.Context) error {
	log, err := v.read(ctx, 0)
	if err != nil {
		return err
	}
	return v.server.Print(func() error {
		if err := v.show(log); err != nil {
			return err
		}
		if log.Why != "" && len(log.Lines) == 0 {
			v.say(log.Why)
		}
		return nil
	})
}

// followAll shows one attempt after the other.
func (v *logView) followAll(ctx context.Context) error {
	only, away := v.attempt > 0, time.Time{}
	for {
		log, err := v.read(ctx, followHold)
		if app.ExitCode(err) == app.ExitUnreachable && (away.IsZero() || time.Since(away) < followPatience) {
			if away.IsZero() {
				away = time.Now()
			}
			v.say("the control plane does not answer; trying again")
			select {
			case <-time.After(followRetry):
				continue
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			return nil //nolint:nilerr // Ctrl-C is how following ends
		}
		if err != nil {
			return err
		}
		away = time.Time{}
		if v.attempt == 0 && log.Attempt > 0 {
			v.attempt = log.Attempt
		}
		if err := v.show(log); err != nil {
			return err
		}
		v.after = log.Next
		if !log.Ended {
			if len(log.Lines) == 0 && log.Why != "" {
				v.say(log.Why)
			}
			continue
		}
		task, err := v.server.Tasks.Get(ctx, v.id)
		if err != nil {
			return err
		}
		if only || task.Status.Settled() {
			v.say(fmt.Sprintf("attempt %d has ended; the task is %s: mainstay task get %s", v.attempt, task.Status,
				v.id))
			return nil
		}
		v.say(fmt.Sprintf("attempt %d has ended; the task is %s", v.attempt, task.Status))
		v.attempt, v.after = v.attempt+1, 0
	}
}

// show writes the lines, or a JSON object for each.
func (v *logView) show(log *api.TaskLog) error {
	last := v.after
	for i := range log.Lines {
		line := &log.Lines[i]
		if v.app.JSON() {
			if err := v.app.PrintLine(line); err != nil {
				return err
			}
			continue
		}
		if missing := line.Number - last - 1; missing > 0 {
			fmt.Fprintf(v.app.Stderr, "[%d lines before these are no longer kept]\n", missing)
		}
		last = line.Number
		out := v.app.Stdout
		if v.live && line.Stream == "stderr" {
			out = v.app.Stderr
		}
		if _, err := fmt.Fprintln(out, v.text(line)); err != nil {
			return err
		}
	}
	return nil
}

func (v *logView) text(line *api.LogLine) string {
	text := app.Printable(line.Text)
	if v.times {
		return line.At.UTC().Format("2006-01-02T15:04:05.000Z") + " " + text
	}
	return text
}

// say says something beside the log, once in a row.
func (v *logView) say(text string) {
	if v.told != text && !v.live {
		fmt.Fprintln(v.app.Stderr, "["+app.OneLine(text)+"]")
	}
	v.told = text
}

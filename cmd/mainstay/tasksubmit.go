package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/agent"
	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/fleet"
)

// submission is the command line of `task submit`.
type submission struct {
	request   api.TaskRequest
	payload   string
	safety    string
	priority  string
	startAt   string
	timeout   time.Duration
	expiresIn time.Duration
	beacon    time.Duration
	dir       string
	env       []string
	labels    []string
	wait      time.Duration
}

func (a *app) taskSubmitCommand() *cobra.Command {
	var s submission
	command := &cobra.Command{
		Use:   "submit [flags] [-- COMMAND ARGUMENT…]",
		Short: "Submit a task",
		Long: `Submit a task. It is durable as soon as this command has printed its id.

What stands after "--" is run as a command by an agent that allows it (task type exec), without a shell. With --wait,
what it writes comes out here as if it had run here; what becomes of the task is said on standard error.`,
		Example: `  mainstay task submit --wait -- echo hello
  mainstay task submit --type render --cluster studio --payload @scene.json --priority high
  mainstay task submit --start-at +10m -- ./nightly.sh
  echo '{"n": 1}' | mainstay task submit --type count --payload -`,
		RunE: func(c *cobra.Command, args []string) error {
			request, err := s.build(a.stdin, a.now(), args, c.ArgsLenAtDash())
			if err != nil {
				return err
			}
			client, err := a.client()
			if err != nil {
				return err
			}
			task := &api.Task{}
			raw, err := client.call(c.Context(), http.MethodPost, tasksPath, 0, request, task)
			if err != nil {
				return err
			}
			if s.wait == 0 {
				return a.printSubmitted(raw, task)
			}
			if raw, task, err = client.waitForTask(c.Context(), task.ID, s.wait); err != nil {
				return err
			}
			if task.Type == agent.ExecType && a.output != "json" {
				err = a.printCommand(task)
			} else {
				err = a.printTask(raw, task, wholeText)
			}
			return errors.Join(err, incomplete(task, s.wait))
		},
	}
	flags := command.Flags()
	flags.StringVar(&s.request.ID, "id", "", "id of the task (default: one is made); the same id again is the same task of its tenant")
	flags.StringVar(&s.request.IdempotencyKey, "idempotency-key", "", "the same key again is the same task")
	flags.StringVar(&s.startAt, "start-at", "", "when it may begin: a time such as 2026-12-24T18:00:00Z, or +10m from now (default at once)")
	s.taskFlags(command)
	waitFlag(command, &s.wait)
	a.outputFlag(command)
	return command
}

// taskFlags are the flags that say what the task is, for `task submit` and `schedule create`.
func (s *submission) taskFlags(command *cobra.Command) {
	flags, r := command.Flags(), &s.request
	flags.StringVar(&r.Type, "type", "", "task type, which an agent must handle (exec when a command is given)")
	flags.StringVar(&r.Cluster, "cluster", "default", "cluster whose agents may do it")
	flags.StringVar(&s.payload, "payload", "", "JSON for the handler: the text itself, @FILE, or - for standard input")
	flags.StringVar(&s.priority, "priority", "", "1 (first) to 5 (last), or critical, high, normal, low or background (default normal)")
	flags.StringVar(&r.Agent, "agent", "", "only this agent may do it; it waits while the agent is offline")
	flags.StringVar(&s.safety, "retry-safety", "", "when its agent is lost: idempotent (run again at once), fenced (when the lost agent has certainly stopped) or at_most_once (a person decides) (default idempotent)")
	flags.DurationVar(&s.timeout, "timeout", 0, "how long one attempt may run (default 24h)")
	flags.DurationVar(&s.beacon, "beacon-timeout", 0, "end an attempt whose handler gives no sign of life for this long, such as 45s; output of a command is one (default: not watched)")
	flags.DurationVar(&s.expiresIn, "expires-in", 0, "how long it may wait for an agent, from its start on (default 1h)")
	flags.IntVar(&r.Retry.MaxAttempts, "max-attempts", 0, "attempts that may fail before it is a dead letter (default 3)")
	flags.StringArrayVar(&r.Retry.NonRetryable, "non-retryable", nil, "type of failure that is not tried again, such as exit_2 of a command (repeatable)")
	flags.StringArrayVar(&r.RequiredCapabilities, "capability", nil, "capability that its agent must have (repeatable)")
	flags.StringArrayVar(&r.PreferredCapabilities, "prefer", nil, "capability that its agent should rather have (repeatable)")
	flags.StringVar(&r.Affinity, "affinity", "", "agent that should rather do it")
	flags.StringVar(&r.Provider, "provider", "", "outside service that it calls; agents with access are preferred, rate-limited ones wait")
	flags.StringVar(&r.ShardKey, "shard-key", "", "in a sharded cluster: what belongs together has the same key")
	flags.StringVar(&r.Tenant, "tenant", "", "whose work it is; tenants share agents fairly")
	flags.StringArrayVar(&s.labels, "label", nil, "NAME=VALUE to find it by (repeatable)")
	flags.StringVar(&s.dir, "dir", "", "working directory of the command")
	flags.StringArrayVar(&s.env, "env", nil, "NAME=VALUE for the command (repeatable)")
}

// build checks the command line. dash is how many arguments stand before "--", -1 without one.
func (s *submission) build(stdin io.Reader, now time.Time, args []string, dash int) (*api.TaskRequest, error) {
	r := s.request
	r.RetrySafety, r.Timeout, r.ExpiresIn = fleet.RetrySafety(s.safety), fleet.Duration(s.timeout), fleet.Duration(s.expiresIn)
	r.BeaconTimeout = fleet.Duration(s.beacon)
	var err error
	if r.Labels, err = pairs("--label", s.labels); err != nil {
		return nil, err
	}
	if r.Priority, err = priorityFlag(s.priority); err != nil {
		return nil, err
	}
	if r.StartAt, err = startFlag(s.startAt, now); err != nil {
		return nil, err
	}
	switch {
	case len(args) > 0 && dash != 0:
		return nil, usageError("put the command to run after --, as in: mainstay task submit -- echo hello")
	case len(args) > 0:
		err = s.command(&r, args)
	case dash == 0:
		return nil, usageError("there is no command after --")
	case r.Type == "":
		return nil, usageError("give --type, or a command to run after --")
	case s.dir != "" || len(s.env) > 0:
		return nil, usageError("--dir and --env belong to a command after --")
	default:
		r.Payload, err = readJSON("--payload", s.payload, stdin)
	}
	if err != nil {
		return nil, err
	}
	return &r, withExit(exitUsage, r.Validate())
}

func (s *submission) command(r *api.TaskRequest, args []string) error {
	if s.payload != "" {
		return usageError("give --payload or a command after --, not both")
	}
	if r.Type == "" {
		r.Type = agent.ExecType
	}
	if r.Type != agent.ExecType {
		return usageError("a command after -- is a task of type %s, not of the --type given", agent.ExecType)
	}
	env, err := pairs("--env", s.env)
	if err != nil {
		return err
	}
	r.Payload, err = json.Marshal(agent.ExecPayload{Command: args, Env: env, Dir: s.dir})
	return err
}

// pairs reads NAME=VALUE; nil for none.
func pairs(flag string, list []string) (map[string]string, error) {
	if len(list) == 0 {
		return nil, nil
	}
	m := make(map[string]string, len(list))
	for _, pair := range list {
		name, value, found := strings.Cut(pair, "=")
		if !found || name == "" {
			return nil, usageError("%s must be NAME=VALUE", flag)
		}
		m[name] = value
	}
	return m, nil
}

// readJSON reads the value of a flag: JSON, @FILE, or - for standard input. Empty is nil.
func readJSON(flag, value string, stdin io.Reader) (json.RawMessage, error) {
	var data []byte
	var err error
	switch {
	case value == "":
		return nil, nil
	case value == "-":
		data, err = io.ReadAll(io.LimitReader(stdin, fleet.MaxPayloadBytes+1))
	case strings.HasPrefix(value, "@"):
		data, err = os.ReadFile(value[1:])
	default:
		data = []byte(value)
	}
	if err != nil {
		return nil, usageError("%s: %w", flag, err)
	}
	if len(data) > fleet.MaxPayloadBytes {
		return nil, usageError("%s is larger than %s", flag, byteCount(fleet.MaxPayloadBytes))
	}
	var any json.RawMessage
	if err := json.Unmarshal(data, &any); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return nil, usageError("%s is not JSON: %w (byte %d)", flag, err, syntax.Offset)
		}
		return nil, usageError("%s is not JSON: %w", flag, err)
	}
	return any, nil
}

func (a *app) printSubmitted(raw json.RawMessage, task *api.Task) error {
	return a.print(raw, func() error {
		note := "submitted"
		switch {
		case task.Duplicate:
			note = "was submitted before; it is " + string(task.Status)
		case task.NextAttemptAt != nil:
			note = "submitted; it starts " + a.ago(task.NextAttemptAt)
		}
		_, err := fmt.Fprintf(a.stdout, "Task %s %s. See it with: mainstay task get %s --wait\n", task.ID, note, task.ID)
		return err
	})
}

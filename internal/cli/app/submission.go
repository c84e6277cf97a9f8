package app

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/internal/config/document"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/payload"
)

// Submission is a task as a command line says it, for `task submit` and `schedule create`.
type Submission struct {
	Request api.TaskRequest
	payload string
	place   string
	dir     string
	env     map[string]string
}

// TaskFlags are the flags that say what the task is, for `task submit` and `schedule create`.
func (s *Submission) TaskFlags(command *cobra.Command) {
	flags, r := command.Flags(), &s.Request
	flags.StringVar(&r.Type, "type", "", "task type, which an agent must handle (exec when a command is given)")
	flags.StringVar(&r.Cluster, "cluster", "default", "cluster whose agents may do it")
	s.PayloadFlags(command)
	PriorityFlag(flags, &r.Priority,
		"1 (first) to 5 (last), or critical, high, normal, low or background (default normal)")
	flags.StringVar(&r.Agent, "agent", "", "only this agent of the cluster may do it; it waits while the agent is offline")
	flags.StringVar((*string)(&r.RetrySafety), "retry-safety", "",
		"when its agent is lost: idempotent (run again at once), fenced (when the lost agent has certainly stopped) or "+
			"at_most_once (a person decides) (default idempotent)")
	flags.DurationVar((*time.Duration)(&r.Timeout), "timeout", 0, "how long one attempt may run (default 24h)")
	flags.Func("stop-grace", "how long its work has to end once asked to: a command gets SIGTERM, and SIGKILL then "+
		"(default 30s for a command, 5s for other work)", graceOf(&r.StopGrace))
	flags.Func("disconnect-grace", "how long its agent may be out of touch before it counts as lost "+
		"(default 30s for at_most_once and unmarked, 0s for idempotent)", graceOf(&r.DisconnectGrace))
	flags.DurationVar((*time.Duration)(&r.BeaconTimeout), "beacon-timeout", 0,
		"end an attempt whose handler gives no sign of life for this long, such as 45s; a command that lives is one, "+
			"however quiet it is: bound it with --timeout (default: not watched)")
	flags.DurationVar((*time.Duration)(&r.ExpiresIn), "expires-in", 0,
		"how long it may wait for an agent, from its start on (default 1h)")
	flags.IntVar(&r.Retry.MaxAttempts, "max-attempts", 0,
		"attempts that may fail before it is a dead letter (default 3)")
	flags.StringArrayVar(&r.Retry.NonRetryable, "non-retryable", nil,
		"type of failure that is not tried again, such as exit_2 of a command (repeatable)")
	flags.StringArrayVar(&r.RequiredCapabilities, "capability", nil, "capability that its agent must have (repeatable)")
	flags.StringArrayVar(&r.PreferredCapabilities, "prefer", nil,
		"capability that its agent should rather have (repeatable)")
	flags.StringVar(&s.place, "place", "",
		`resources, devices, volumes and ports that it needs, as YAML: '{devices: [{kind: gpu, memory: 8Gi}]}', or @FILE`)
	flags.StringVar(&r.Affinity, "affinity", "", "agent that should rather do it")
	flags.StringVar(&r.Provider, "provider", "",
		"outside service that it calls; agents with access are preferred, rate-limited ones wait")
	flags.StringVar(&r.ShardKey, "shard-key", "", "in a sharded cluster: what belongs together has the same key")
	flags.StringVar(&r.Tenant, "tenant", "", "whose work it is; tenants share agents fairly")
	PairsFlag(flags, &r.Labels, "label", "", "NAME=VALUE to find it by (repeatable)")
	Bounded[api.TaskRequest](flags, map[string]string{"timeout": "timeout", "beacon-timeout": "beacon_timeout",
		"expires-in": "expires_in", "max-attempts": "retry.max_attempts"})
}

// graceOf reads a duration that may be zero.
func graceOf(grace **api.Duration) func(text string) error {
	return func(text string) error {
		read, err := api.ParseDuration(text)
		*grace = new(api.Duration(read))
		return err
	}
}

// PayloadFlags are the flags of a task's payload.
func (s *Submission) PayloadFlags(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&s.payload, "payload", "", "JSON for the handler: the text itself, @FILE, or - for standard input")
	flags.StringVar(&s.dir, "dir", "", "working directory of the command")
	PairsFlag(flags, &s.env, "env", "", "NAME=VALUE for the command (repeatable)")
}

// Build checks the command line. dash is how many arguments stand before "--", -1 without one.
func (s *Submission) Build(stdin io.Reader, args []string, dash int) (*api.TaskRequest, error) {
	r := s.Request
	var err error
	if r.Place, err = placeFlag(s.place); err != nil {
		return nil, err
	}
	if err := s.TakePayload(&r, stdin, args, dash); err != nil {
		return nil, err
	}
	if r.Type == "" {
		return nil, UsageError("give --type, or a command to run after --")
	}
	return &r, WithExit(ExitUsage, r.Validate())
}

// commandAfterDashes ends the usage of those that take a command.
const commandAfterDashes = "[-- COMMAND ARGUMENT…]"

var errDashes = UsageError("put the command to run after --, as in: mainstay task submit -- echo hello")

// TakePayload gives a task the payload of the command line. dash is as for Build.
func (s *Submission) TakePayload(r *api.TaskRequest, stdin io.Reader, args []string, dash int) (err error) {
	switch {
	case len(args) > 0 && dash != 0:
		return errDashes
	case len(args) > 0:
		return s.command(r, args)
	case dash == 0:
		return UsageError("there is no command after --")
	case s.dir != "" || len(s.env) > 0:
		return UsageError("--dir and --env belong to a command after --")
	}
	r.Payload, err = ReadJSON("--payload", s.payload, stdin)
	return err
}

// CheckPayload checks the payload of the task that was built. A mistake in a file is reported with its line.
func (s *Submission) CheckPayload(r *api.TaskRequest) error {
	err := payload.Task(&r.TaskSpec)
	wrong, found := errors.AsType[*payload.Error](err)
	name, isFile := strings.CutPrefix(s.payload, "@")
	if !found || !isFile {
		return WithExit(ExitUsage, err)
	}
	text, readErr := os.ReadFile(name)
	var whole json.RawMessage
	places, placeErr := document.Read(name, text, &whole, nil)
	if readErr != nil || placeErr != nil {
		return WithExit(ExitUsage, err)
	}
	problems := make([]document.Problem, len(wrong.Problems))
	for i, p := range wrong.Problems {
		field, _ := strings.CutPrefix(p.Field, "payload")
		problems[i] = places.Place(strings.TrimPrefix(field, "."), "%s", p.What)
	}
	return WithExit(ExitUsage, &document.Error{Problems: problems})
}

func placeFlag(text string) (place api.Demand, err error) {
	name, file := strings.CutPrefix(text, "@")
	data := []byte(text)
	switch {
	case text == "":
		return place, nil
	case !file:
		name = "--place"
	default:
		if data, err = os.ReadFile(name); err != nil {
			return place, WithExit(ExitUsage, fmt.Errorf("--place: %w", err))
		}
	}
	_, err = document.Read(name, data, &place, nil)
	return place, WithExit(ExitUsage, err)
}

func (s *Submission) command(r *api.TaskRequest, args []string) error {
	if s.payload != "" {
		return UsageError("give --payload or a command after --, not both")
	}
	r.Type = cmp.Or(r.Type, agent.ExecType)
	if r.Type != agent.ExecType {
		return UsageError("a command after -- is a task of type %s, not of type %s", agent.ExecType, r.Type)
	}
	var err error
	r.Payload, err = json.Marshal(agent.ExecPayload{Command: args, Env: s.env, Dir: s.dir})
	return err
}

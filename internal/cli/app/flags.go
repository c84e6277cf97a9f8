package app

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"mainstay.dev/mainstay/internal/textfile"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/spelling"
)

// limitFlag adds --limit to a command that lists what can be a lot.
func limitFlag(c *cobra.Command) *int {
	return c.Flags().Int("limit", 50, "at most this many")
}

// CheckFirst adds a check of flags to those that come before a command runs.
func CheckFirst(c *cobra.Command, check func() error) {
	next := c.PreRunE
	c.PreRunE = func(c *cobra.Command, args []string) error {
		if err := check(); err != nil || next == nil {
			return err
		}
		return next(c, args)
	}
}

// parsed is a flag that is read with the command line.
type parsed struct {
	text, kind string
	read       func(text string) error
}

func (p *parsed) String() string { return p.text }
func (p *parsed) Type() string   { return p.kind }

// Set implements pflag.Value.
func (p *parsed) Set(text string) error {
	p.text = text
	if text == "" {
		return nil // emptyFlag refuses it
	}
	return p.read(text)
}

// PriorityFlag adds --priority.
func PriorityFlag(flags *pflag.FlagSet, priority *api.Priority, usage string) {
	flags.Var(&parsed{kind: "string", read: func(text string) (err error) {
		if *priority, err = api.ParsePriority(text); err != nil {
			return UsageError("--%w", err)
		}
		return nil
	}}, "priority", usage)
}

// PriorityArgs are the arguments of a command that changes the priority of something.
func PriorityArgs(of string, priority *api.Priority) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) (err error) {
		if err = Exactly(of, "a priority")(c, args); err == nil {
			*priority, err = api.ParsePriority(args[1])
		}
		return err
	}
}

// PastFlag adds a flag for a time, or how long ago it was, such as 2h; -2h means the same.
func (a *App) PastFlag(flags *pflag.FlagSet, name, usage string, set func(time.Time)) {
	flags.Var(&parsed{kind: "string", read: func(text string) error {
		if at, err := time.Parse(time.RFC3339, text); err == nil {
			set(at.UTC())
			return nil
		}
		ago, err := api.ParseDuration(strings.TrimPrefix(text, "-"))
		if err != nil || ago < 0 || strings.HasPrefix(text, "+") {
			return UsageError("--%s must be a time such as 2026-12-24T18:00:00Z, or how long ago, such as 2h", name)
		}
		set(a.Now().Add(-ago).UTC())
		return nil
	}}, name, usage)
}

// TimeFlag adds a flag for a time, or one counted from now, such as +10m, or -2h.
func (a *App) TimeFlag(flags *pflag.FlagSet, name, usage string, set func(time.Time)) {
	flags.Var(&parsed{kind: "string", read: func(text string) error {
		if strings.HasPrefix(text, "+") || strings.HasPrefix(text, "-") {
			span, err := api.ParseDuration(text[1:])
			if err != nil || span < 0 {
				return UsageError("--%s: write the time from now like +10m, +2h30m or -2h", name)
			}
			if text[0] == '-' {
				span = -span
			}
			set(a.Now().Add(span).UTC())
			return nil
		}
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return UsageError("--%s must be a time such as 2026-12-24T18:00:00Z or 2026-12-24T18:00:00+01:00, or counted "+
				"from now, such as +10m", name)
		}
		set(at.UTC())
		return nil
	}}, name, usage)
}

// Complete has shells offer the words for a flag of the command.
func Complete(c *cobra.Command, flag string, words ...string) {
	// It fails only for a flag that is not there.
	_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// OutputFlag adds -o to a command that prints data.
func (a *App) OutputFlag(c *cobra.Command) {
	c.Flags().StringVarP(&a.output, "output", "o", "text", "text or json")
	Complete(c, "output", "text", "json")
	CheckFirst(c, func() error {
		if a.output != "text" && a.output != "json" {
			return UsageError("--output must be text or json")
		}
		return nil
	})
}

// defaultWait is what --wait alone means.
const defaultWait = 30 * time.Second

// WaitFlag adds --wait[=30s]; until says what is waited for.
func WaitFlag(c *cobra.Command, wait *time.Duration, until string) {
	c.Flags().DurationVar(wait, "wait", 0, "wait until "+until+", at most this long (--wait alone: 30s)")
	c.Flags().Lookup("wait").NoOptDefVal = defaultWait.String()
	MayBeZero(c.Flags(), "wait")
}

// PairsFlag adds a flag for NAME=VALUE, with a shorthand or none, which may be repeated. No name may have two values.
func PairsFlag(flags *pflag.FlagSet, pairs *map[string]string, name, short, usage string) {
	flags.VarP(&parsed{kind: "stringArray", read: func(text string) error {
		key, value, found := strings.Cut(text, "=")
		if !found || key == "" {
			return UsageError("--%s must be NAME=VALUE", name)
		}
		if other, twice := (*pairs)[key]; twice && other != value {
			return UsageError("--%s %s is given twice, with different values: keep one of them", name, key)
		}
		if *pairs == nil {
			*pairs = map[string]string{}
		}
		(*pairs)[key] = value
		return nil
	}}, name, short, usage)
}

// maxPayloadFile bounds how much of a payload is read: enough to see that it is too large, with a byte order mark.
const maxPayloadFile = api.MaxPayloadBytes + int64(len(textfile.Mark)) + 1

// ReadJSON reads the value of a flag: JSON, @FILE, or - for standard input. Empty is nil.
func ReadJSON(flag, value string, stdin io.Reader) (json.RawMessage, error) {
	var data []byte
	var err error
	switch {
	case value == "":
		return nil, nil
	case value == "-":
		data, err = textfile.ReadAll(io.LimitReader(stdin, maxPayloadFile))
	case strings.HasPrefix(value, "@"):
		data, err = textfile.Read(value[1:])
	default:
		data = []byte(value)
	}
	if err != nil {
		return nil, UsageError("%s: %w", flag, err)
	}
	if len(data) > api.MaxPayloadBytes {
		return nil, UsageError("%s is larger than %s", flag, ByteCount(api.MaxPayloadBytes))
	}
	var any json.RawMessage
	if err := json.Unmarshal(data, &any); err != nil {
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			return nil, UsageError("%s is not JSON: %w (byte %d)", flag, err, syntax.Offset)
		}
		return nil, UsageError("%s is not JSON: %w", flag, err)
	}
	if err := api.CheckJSONKeys(any); err != nil {
		return nil, UsageError("%s: %w", flag, err)
	}
	return any, nil
}

// plainFlagError says what a flag's value must be, instead of a parser's error, and for an unknown flag which one was
// meant.
func plainFlagError(c *cobra.Command, err error) error {
	if unknown, is := errors.AsType[*pflag.NotExistError](err); is && len(unknown.GetSpecifiedName()) > 1 {
		var names []string
		c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		if near := spelling.Nearest(unknown.GetSpecifiedName(), names); near != "" {
			return fmt.Errorf("%w; did you mean --%s?", err, near)
		}
	}
	if usage, is := errors.AsType[*exitError](err); is {
		return usage
	}
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err
	}
	flag := invalid.GetFlag()
	var out boundsError
	if errors.As(err, &out) {
		return fmt.Errorf("--%s %w", flag.Name, out.error)
	}
	switch flag.Value.Type() {
	case "duration":
		return fmt.Errorf("--%s must be a duration such as 30s, 5m, 1h30m or 7d", flag.Name)
	case "int", "int64":
		return fmt.Errorf("--%s must be a whole number", flag.Name)
	case "float64":
		return fmt.Errorf("--%s must be a number", flag.Name)
	case "bool":
		return fmt.Errorf("--%s must be true or false", flag.Name)
	}
	return err
}

// strayWait finds the duration of --wait standing apart from it: the flag alone means 30 s, so it would be taken for an
// argument.
func strayWait(c *cobra.Command, args []string) error {
	flag := c.Flags().Lookup("wait")
	if flag == nil || flag.NoOptDefVal == "" || flag.Value.String() != flag.NoOptDefVal {
		return nil
	}
	if dash := c.ArgsLenAtDash(); dash >= 0 {
		args = args[:dash]
	}
	for _, arg := range args {
		if _, err := api.ParseDuration(arg); err == nil {
			return fmt.Errorf("write --wait=%s, with an equals sign", arg)
		}
	}
	return nil
}

// mayBeEmpty annotates a flag that can be given as "".
const mayBeEmpty = "mainstay-may-be-empty"

// MayBeEmpty lets flags be given as "", which means something other than to leave them out.
func MayBeEmpty(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		_ = flags.SetAnnotation(name, mayBeEmpty, nil) // it fails for a flag that there is not
	}
}

// emptyFlag refuses a flag that is given as "", as by a variable of the shell that is not set: without its value, a
// filter selects all, and an id is made anew each time. Words for people may be empty.
func emptyFlag(c *cobra.Command) (err error) {
	c.Flags().Visit(func(f *pflag.Flag) {
		_, may := f.Annotations[mayBeEmpty]
		if err == nil && !may && f.Value.Type() == "string" && f.Value.String() == "" &&
			f.Name != "reason" && f.Name != "note" {
			err = fmt.Errorf("--%s is empty: give it a value, or leave it out", f.Name)
		}
	})
	return err
}

// classifyUsage makes wrong arguments of every command usage errors, and unknown words below a group too. Durations of
// all commands are read in each form.
func classifyUsage(c *cobra.Command) {
	boundNumbers(c)
	if !c.Runnable() {
		c.Args, c.RunE = cobra.ArbitraryArgs, func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return UsageError("there is no command %q%s", c.CommandPath()+" "+args[0], didYouMean(c, args[0]))
			}
			return c.Help()
		}
	} else {
		check := c.Args
		if check == nil {
			check = cobra.ArbitraryArgs
		}
		c.Args = func(c *cobra.Command, args []string) error {
			if err := cmp.Or(strayWait(c, args), emptyFlag(c)); err != nil {
				return WithExit(ExitUsage, err)
			}
			return WithExit(ExitUsage, check(c, args))
		}
	}
	for _, sub := range c.Commands() {
		classifyUsage(sub)
	}
}

// didYouMean names the command of a group that is spelt much like a word; empty: none is.
func didYouMean(group *cobra.Command, word string) string {
	group.SuggestionsMinimumDistance = 2
	if near := group.SuggestionsFor(word); len(near) > 0 {
		return fmt.Sprintf("; did you mean %q?", group.CommandPath()+" "+near[0])
	}
	return ""
}

// Exactly wants n arguments and says what they are.
func Exactly(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		if len(names) == 0 {
			return fmt.Errorf("takes no arguments, got %d", len(args))
		}
		return fmt.Errorf("needs %s, got %s", strings.Join(names, " and "), api.Count(len(args), "argument"))
	}
}

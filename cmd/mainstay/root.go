package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/fleet"
)

// run executes a command line and returns the process's exit code.
func (a *app) run(ctx context.Context, args []string) int {
	root := a.rootCommand()
	root.SetArgs(args)
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.InitDefaultCompletionCmd() // it writes where the root does at this time
	if completion, _, err := root.Find([]string{"completion"}); err == nil && completion != root {
		classifyUsage(completion)
	}
	command, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	code := exitCode(err)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		code = exitInterrupted
	}
	if text := message(err); text != "" {
		fmt.Fprintln(a.stderr, "Error:", text)
	}
	if code == exitUsage && command != nil {
		fmt.Fprintf(a.stderr, "See `%s --help`.\n", command.CommandPath())
	}
	return code
}

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "mainstay",
		Short: "Durable control plane for fleets of remote agents",
		Long: `Mainstay keeps a fleet of remote agents doing its work: tasks are delivered durably, the loss of an agent is noticed
in about a second, and its work moves to another.

Begin with "mainstay dev", which runs everything on this machine, or "mainstay demo", which shows it at work.

` + exitCodeHelp(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddCommand(a.devCommand(), a.demoCommand(), a.serveCommand(), a.agentCommand(), a.taskCommand(), a.scheduleCommand(), a.overviewCommand(), a.clusterCommand(), a.queueCommand(), a.eventsCommand(), a.failoverCommand(), a.drainCommand(), a.tokenCommand(), a.scalingCommand(), a.healingCommand(), a.benchCommand(), a.statusCommand(), a.configCommand(), a.openapiCommand(), a.versionCommand())
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return withExit(exitUsage, plainFlagError(err)) })
	a.addCompletion(root)
	classifyUsage(root)
	return root
}

// classifyUsage makes wrong arguments of every command usage errors, and unknown words below a group too.
func classifyUsage(c *cobra.Command) {
	if !c.Runnable() {
		c.Args, c.RunE = cobra.ArbitraryArgs, func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError("there is no command %q", c.CommandPath()+" "+args[0])
			}
			return c.Help()
		}
	} else {
		check := c.Args
		if check == nil {
			check = cobra.ArbitraryArgs
		}
		c.Args = func(c *cobra.Command, args []string) error {
			if err := strayWait(c, args); err != nil {
				return withExit(exitUsage, err)
			}
			return withExit(exitUsage, check(c, args))
		}
	}
	for _, sub := range c.Commands() {
		classifyUsage(sub)
	}
}

func exitCodeHelp() string {
	var b strings.Builder
	b.WriteString("Exit codes:\n")
	for _, e := range exitCodes {
		fmt.Fprintf(&b, "  %3d  %s\n", e.code, e.meaning)
	}
	return strings.TrimRight(b.String(), "\n")
}

// exactly wants n arguments and says what they are.
func exactly(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		if len(names) == 0 {
			return fmt.Errorf("takes no arguments, got %d", len(args))
		}
		return fmt.Errorf("needs %s, got %s", strings.Join(names, " and "), fleet.Count(len(args), "argument"))
	}
}

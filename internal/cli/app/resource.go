package app

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"mainstay.dev/sdk/client"
)

// Resource is a kind of thing of the API as the command line speaks of it. The verbs that kinds share are made from it.
// S is the kind's part of the client.
type Resource[S any] struct {
	*App
	Of     func(*client.Client) S
	Group  string // of its commands: "task bulk"
	Arg    string // an id in usage lines: ARRAY
	ID     string // what an id must be: an array's id; empty: there is but one thing
	Sample string // an id in examples
	Title  string // how a sentence about one begins: Array
	Next   string // what to do with an id whose thing was steered: See it with: mainstay array get
	Reason string // the usage of --reason
	Why    string // a reason in examples
	// Full is the id that begins with begin; missing is the error of begin as an id. nil: ids are whole.
	Full func(ctx context.Context, s S, begin string, missing error) (string, error)
}

// List makes a command that lists things, at most --limit of them.
func List[S, Q, E any](
	r *Resource[S], command *cobra.Command, flags func(*cobra.Command, *Q), list func(S, Q) *client.List[E],
	text func(*App, []E) error,
) *cobra.Command {
	return lists(r, command, limitFlag(command), flags, list, text)
}

// ListAll makes a command that lists all things.
func ListAll[S, Q, E any](
	r *Resource[S], command *cobra.Command, flags func(*cobra.Command, *Q), list func(S, Q) *client.List[E],
	text func(*App, []E) error,
) *cobra.Command {
	return lists(r, command, new(int), flags, list, text)
}

// All is a list from which nothing can be selected.
func All[S, E any](list func(S) *client.List[E]) func(S, struct{}) *client.List[E] {
	return func(s S, _ struct{}) *client.List[E] { return list(s) }
}

func lists[S, Q, E any](
	r *Resource[S], command *cobra.Command, limit *int, flags func(*cobra.Command, *Q),
	list func(S, Q) *client.List[E], text func(*App, []E) error,
) *cobra.Command {
	q := new(Q)
	if flags != nil {
		flags(command, q)
	}
	if command.Args == nil {
		command.Args = Exactly()
	}
	return r.Call(command, func(ctx context.Context, c *Client, _ []string) error {
		return PrintList(ctx, c, list(r.Of(c.Client), *q), *limit, text)
	})
}

// Get makes a command that shows a thing.
func Get[S, T any](
	r *Resource[S], command *cobra.Command, get func(S, context.Context, string) (T, error), text func(*App, T) error,
) *cobra.Command {
	do := func(s S, ctx context.Context, id string, _ struct{}) (T, error) { return get(s, ctx, id) }
	return Do(r, command, nil, do, text)
}

// Do makes a command that does something with a thing, as flags say, and prints what the API answers.
func Do[S, In, T any](
	r *Resource[S], command *cobra.Command, flags func(*cobra.Command, *In),
	do func(S, context.Context, string, In) (T, error), text func(*App, T) error,
) *cobra.Command {
	return act(r, command, flags, do, func(_ string, thing T) error { return text(r.App, thing) })
}

// Only adapts an action on a thing that exists only once.
func Only[S, In, T any](do func(S, context.Context, In) (T, error)) func(S, context.Context, string, In) (T, error) {
	return func(s S, ctx context.Context, _ string, in In) (T, error) { return do(s, ctx, in) }
}

// Tell is Do that prints one line about the result.
func Tell[S, In, T any](
	r *Resource[S], command *cobra.Command, flags func(*cobra.Command, *In),
	do func(S, context.Context, string, In) (T, error), line func(id string, thing T) string,
) *cobra.Command {
	return act(r, command, flags, do, func(id string, thing T) error { return r.Say(line(id, thing)) })
}

// Steer makes a command that changes how a thing stands, for a reason, and says what it does then.
func Steer[S, T any](
	r *Resource[S], verb, short, then string, do func(S, context.Context, string, string) (T, error),
) *cobra.Command {
	return Tell(r, r.Steered(verb, short), r.ReasonFlag, do, func(id string, _ T) string { return r.Then(id, then) })
}

// Steered are the words of a command that steers things.
func (r *Resource[S]) Steered(verb, short string) *cobra.Command {
	return &cobra.Command{Use: verb + " " + r.Arg, Short: short,
		Example: fmt.Sprintf("  mainstay %s %s %s --reason %q", r.Group, verb, r.Sample, r.Why)}
}

// Then says what a thing does after it was steered, and what to do next.
func (r *Resource[S]) Then(id, then string) string {
	text := r.Title + " " + id + " " + then + "."
	if r.Next != "" {
		text += " " + r.Next + " " + id
	}
	return text
}

// ReasonFlag adds --reason.
func (r *Resource[S]) ReasonFlag(c *cobra.Command, reason *string) { ReasonFlag(r.Reason)(c, reason) }

// ReasonFlag adds --reason with a usage of its own.
func ReasonFlag(usage string) func(*cobra.Command, *string) {
	return func(c *cobra.Command, reason *string) { c.Flags().StringVar(reason, "reason", "", usage) }
}

// ClusterFlag adds --cluster to a list from which nothing else can be selected.
func ClusterFlag(c *cobra.Command, cluster *string) {
	c.Flags().StringVar(cluster, "cluster", "", "only of this cluster")
}

func act[S, In, T any](
	r *Resource[S], command *cobra.Command, flags func(*cobra.Command, *In),
	do func(S, context.Context, string, In) (T, error), show func(id string, thing T) error,
) *cobra.Command {
	in := new(In)
	if flags != nil {
		flags(command, in)
	}
	r.takesID(command)
	return r.Call(command, func(ctx context.Context, c *Client, args []string) error {
		id := ""
		if r.ID != "" {
			id = args[0]
		}
		s := r.Of(c.Client)
		thing, err := do(s, ctx, id, *in)
		if err != nil && r.Full != nil {
			if id, err = r.Full(ctx, s, id, err); err == nil {
				thing, err = do(s, ctx, id, *in)
			}
		}
		if err != nil {
			return err
		}
		return c.Print(func() error { return show(id, thing) })
	})
}

// takesID makes a command take an id, unless it says which arguments it takes.
func (r *Resource[S]) takesID(command *cobra.Command) {
	switch {
	case command.Args != nil:
	case r.ID == "":
		command.Args = Exactly()
	default:
		command.Args = Exactly(r.ID)
	}
}

// Delete makes a command that deletes a thing. done says what it is then: deleted.
func Delete[S any](
	r *Resource[S], command *cobra.Command, done, also string, do func(S, context.Context, string) error,
) *cobra.Command {
	r.takesID(command)
	return r.Call(command, func(ctx context.Context, c *Client, args []string) error {
		if err := do(r.Of(c.Client), ctx, args[0]); err != nil {
			return err
		}
		return r.Print(map[string]string{done: args[0]}, func() error {
			return r.Sayf("%s %s is %s.%s\n", r.Title, args[0], done, also)
		})
	})
}

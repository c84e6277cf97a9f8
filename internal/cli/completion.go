package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/client"
)

const (
	// completionLimit bounds what a person waits for after pressing Tab.
	completionLimit = 2 * time.Second
	// completionPage is how many ids are offered at most.
	completionPage = 200
)

// completed says which resource the first argument of a command is, by the command's group. Words that are no ids are
// completed by the flags' own texts.
var completedArguments = map[string]idSource{
	"agent": idsOfAgents, "cluster": idsOfClusters, "task": idsOfTasks, "failover": idsOfFailovers,
	"drain": idsOfDrains, "schedule": idsOfSchedules,
	"bulk": idsOfBulks, "queue": idsOfClusters,
}

// completedFlags says what the values of flags are, whichever command has them.
var completedFlags = map[string]func(*app.App) cobra.CompletionFunc{
	"cluster": idsOfClusters.complete,
	"agent":   idsOfAgents.complete,
	"to":      idsOfAgents.complete,
	"state":   words("ready", "busy", "draining", "maintenance", "dead", "unknown"),
	"health":  words("healthy", "degraded", "warning", "critical", "failed"),

	"retry-safety":       words("idempotent", "fenced", "at_most_once"),
	"priority":           words("critical", "high", "normal", "low", "background"),
	"replication-mode":   words("active_active", "active_passive", "sharded"),
	"selection-strategy": words("standby", "least_loaded", "round_robin", "affinity"),
	"decision":           words("rerun", "completed", "failed"),
	"overlap":            words("skip", "buffer_one", "allow_all", "cancel_other"),
	"scaling":            words("off", "manual", "auto"),
	"healing":            words("on", "dry_run", "off"),
}

// completedFlagsOf are those whose words differ from command to command.
var completedFlagsOf = map[string]func(*app.App) cobra.CompletionFunc{
	"task list --status": words("queued", "running", "retry_wait", "review", "dead_letter", "completed", "failed",
		"cancelled", "expired"),
	"agent list --status":      words("online", "suspect", "offline", "draining", "maintenance"),
	"failover list --status":   words("running", "succeeded", "not_in_cluster", "no_target_available", "failed"),
	"healing actions --status": words("running", "succeeded", "failed", "planned", "skipped", "reported"),
	"healing actions --type": words("failover_agent", "reassign_task", "rebalance_cluster", "drain_agent",
		"reduce_load", "restore_agent", "report"),
	"events --type":       eventTypes,
	"token create --kind": words("api", "join"),
	"token create --role": words("viewer", "operator", "admin"),
}

// eventTypes offers the types of events as people write them: without what all begin with.
func eventTypes(*app.App) cobra.CompletionFunc {
	var types []string
	for _, m := range api.EventTypes {
		types = append(types, strings.TrimPrefix(string(m.Type), api.EventPrefix))
	}
	return cobra.FixedCompletions(types, cobra.ShellCompDirectiveNoFileComp)
}

// completedSecond are the words of second arguments.
var completedSecond = map[string][]string{
	"agent maintenance": {"on", "off"},
	"task priority":     {"critical", "high", "normal", "low", "background"},
}

// idSource reads the ids of what there is of a kind.
type idSource func(context.Context, *client.Client) ([]string, error)

var (
	idsOfAgents idSource = func(ctx context.Context, s *client.Client) ([]string, error) {
		return ids(ctx, s.Agents.List(client.AgentQuery{}), func(g *api.Agent) string { return g.ID })
	}
	idsOfClusters idSource = func(ctx context.Context, s *client.Client) ([]string, error) {
		return ids(ctx, s.Clusters.List(), func(k *api.Cluster) string { return k.Name })
	}
	idsOfTasks idSource = func(ctx context.Context, s *client.Client) ([]string, error) {
		return ids(ctx, s.Tasks.List(client.TaskQuery{}), func(t *api.Task) string { return t.ID })
	}
	idsOfFailovers idSource = func(ctx context.Context, s *client.Client) ([]string, error) {
		return ids(ctx, s.Failovers.List(client.FailoverQuery{}), func(r *api.FailoverRecord) string { return r.ID })
	}
	idsOfDrains idSource = func(ctx context.Context, s *client.Client) ([]string, error) {
		return ids(ctx, s.Drains.List(""), func(r *api.DrainRecord) string { return r.ID })
	}
	idsOfSchedules idSource = func(ctx context.Context, s *client.Client) ([]string, error) {
		return ids(ctx, s.Schedules.List(client.ScheduleQuery{}), func(e *api.ScheduleEntry) string { return e.Name })
	}
	idsOfBulks idSource = func(ctx context.Context, s *client.Client) ([]string, error) {
		return ids(ctx, s.Bulks.List(), func(b *api.Bulk) string { return b.ID })
	}
)

// ids are the ids of the first items of a list.
func ids[T any](ctx context.Context, list *client.List[T], id func(*T) string) ([]string, error) {
	items, err := list.Take(ctx, completionPage)
	ids := make([]string, len(items))
	for i := range items {
		ids[i] = id(&items[i])
	}
	return ids, err
}

// addCompletion gives every command below c the completion of its ids and flags. The shell asks the control plane that
// the command line names.
func addCompletion(a *app.App, c *cobra.Command) {
	if source, known := completedArguments[c.Name()]; known && c.Runnable() {
		completeFirst(a, c, source)
	}
	for _, sub := range c.Commands() {
		if source, known := completedArguments[c.Name()]; known && takesID(sub) {
			completeFirst(a, sub, source)
		}
		if sub.ValidArgsFunction == nil && sub.Runnable() &&
			!strings.ContainsAny(strings.TrimPrefix(sub.Use, sub.Name()), "FC") {
			sub.ValidArgsFunction = cobra.NoFileCompletions // no FILE, FOLDER or COMMAND
		}
		addCompletion(a, sub)
	}
	for name, completion := range completedFlags {
		if c.LocalFlags().Lookup(name) != nil {
			_ = c.RegisterFlagCompletionFunc(name, completion(a)) // fails only for a flag that is not there
		}
	}
	for line, completion := range completedFlagsOf {
		if command, flag, _ := strings.Cut(line, " --"); c.CommandPath() == "mainstay "+command {
			_ = c.RegisterFlagCompletionFunc(flag, completion(a))
		}
	}
}

// takesID reports whether the command's first argument is the id of something that exists.
func takesID(c *cobra.Command) bool {
	words := strings.Fields(c.Use)
	return len(words) > 1 && c.Name() != "create" && (strings.HasPrefix(words[1], "ID") || words[1] == "NAME" ||
		words[1] == "[-f]")
}

func completeFirst(a *app.App, c *cobra.Command, source idSource) {
	if c.ValidArgsFunction != nil {
		return
	}
	complete, many := source.complete(a), strings.Contains(c.Use, "ID…")
	second := completedSecond[strings.TrimPrefix(c.CommandPath(), "mainstay ")]
	c.ValidArgsFunction = func(c *cobra.Command, args []string, begun string) ([]cobra.Completion,
		cobra.ShellCompDirective) {
		if len(args) == 1 && second != nil {
			return second, cobra.ShellCompDirectiveNoFileComp
		}
		if len(args) > 0 && !many {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ids, directive := complete(c, args, begun)
		return slices.DeleteFunc(ids, func(id string) bool { return slices.Contains(args, id) }), directive
	}
}

// complete offers the ids that begin as the person has begun. When nobody answers there are none.
func (s idSource) complete(a *app.App) cobra.CompletionFunc {
	return func(c *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		client, err := a.Client()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx := c.Context()
		if ctx == nil {
			ctx = context.Background()
		}
		ctx, cancel := context.WithTimeout(ctx, completionLimit)
		defer cancel()
		ids, err := s(ctx, client.Once())
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		unlike := func(id string) bool { return !strings.HasPrefix(id, begun) }
		return slices.DeleteFunc(ids, unlike), cobra.ShellCompDirectiveNoFileComp
	}
}

// words offers fixed words.
func words(list ...string) func(*app.App) cobra.CompletionFunc {
	return func(*app.App) cobra.CompletionFunc {
		return cobra.FixedCompletions(list, cobra.ShellCompDirectiveNoFileComp)
	}
}

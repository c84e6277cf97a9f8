package task

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/diagnosis"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

type getInput struct {
	rest.ByID
	Include []string `query:"include,explode" enum:"payload,history" maxItems:"2" doc:"payload: answer what was submitted too. history: what happened to it. Of both, give the parameter twice."`
	Wait    string   `query:"wait" maxLength:"32" example:"30s" doc:"Hold the answer until the task has ended, needs a person, or this time is over. At most 60s."`
}

type listInput struct {
	Cluster rest.Slug `query:"cluster"`
	Status  []string  `query:"status,explode" maxItems:"9" enum:"queued,running,retry_wait,review,dead_letter,completed,failed,cancelled,expired" doc:"One of them, where it is given more than once. queued, running and retry_wait are told apart after the page is read, so a page may hold fewer than page_size."`
	Type    rest.Slug `query:"type"`
	Tenant  rest.Slug `query:"tenant"`
	Agent   rest.Slug `query:"agent" doc:"The agent it is pinned to, or that had it. What runs there now is found once the attempt has ended."`
	Prefix  string    `query:"id_prefix" maxLength:"255" pattern:"^[a-z0-9][a-z0-9._:@~-]*$" doc:"How its id begins."`
	Text    string    `query:"text" maxLength:"128" doc:"A part of its id, type, cluster, tenant, schedule, agents, labels or dead letter's cause, in upper or lower case. One request searches up to 5,000 tasks, for a few seconds at most, so a page may hold fewer than page_size."`
	Label   []string  `query:"label,explode" maxItems:"16" doc:"A label as name=value or name:value; of several, a task has all."`
	Cause   string    `query:"cause" maxLength:"128" doc:"Of dead letters: the kind of the cause, as dead_letter.kind has it. A page may hold fewer than page_size, as with text."`
	Stands  string    `query:"recovery" enum:"blocked" doc:"blocked: only those that wait and that no agent in service can run, however busy the agents are; why says the reason. Steps of runs are in their runs. A page may hold fewer than page_size, as with text."`
	After   time.Time `query:"submitted_after" doc:"Submitted at this time or later (RFC 3339)."`
	Before  time.Time `query:"submitted_before" doc:"Submitted before this time (RFC 3339)."`
	rest.RecordPageInput
}

type queueInput struct {
	Cluster rest.Slug `query:"cluster"`
	Tenant  rest.Slug `query:"tenant"`
	rest.RecordPageInput
}

// DeadLettersInput selects dead letters. It is exported because huma reads parameters of exported parts only.
type DeadLettersInput struct {
	Cluster rest.Slug `query:"cluster"`
	Tenant  rest.Slug `query:"tenant"`
	Type    rest.Slug `query:"type"`
	Cause   string    `query:"cause" maxLength:"128" doc:"The kind of the cause, as dead_letter.kind has it."`
}

func (q *DeadLettersInput) list() *listInput {
	return &listInput{Cluster: q.Cluster, Tenant: q.Tenant, Type: q.Type, Cause: q.Cause,
		Status: []string{string(api.TaskDeadLetter)}}
}

type listDeadLettersInput struct {
	DeadLettersInput
	rest.RecordPageInput
}

func (h *Handlers) registerLists(r *rest.Routes) {
	rest.Serve(r, "get-task", "GET /tasks/{id}", "Get a task, or wait for it", "",
		func(ctx context.Context, in *getInput) (api.Task, error) {
			wait, err := rest.ParseWait(in.Wait)
			if err != nil {
				return api.Task{}, err
			}
			return h.waitForTask(ctx, in.ID, wait, in.Include...)
		}, rest.Held)
	rest.List(r, "tasks", "list-tasks", "GET /tasks", "List tasks",
		"By their submission, newest first. A task appears within about a second of its change.", h.list)
	rest.List(r, "tasks", "list-queue", "GET /tasks/queue",
		"List tasks that wait for an agent or for the end of a backoff", "",
		func(ctx context.Context, in *queueInput) (rest.Page[api.Task], error) {
			return h.list(ctx, &listInput{Cluster: in.Cluster, Tenant: in.Tenant,
				RecordPageInput: in.RecordPageInput, Status: []string{string(contract.TaskWaiting)}})
		})
	rest.List(r, "tasks", "list-dead-letters", "GET /tasks/queue/dead-letter", "List dead letters",
		"Tasks whose attempts are used up; retry them, or they fail when their retention ends.",
		func(ctx context.Context, in *listDeadLettersInput) (rest.Page[api.Task], error) {
			list := in.list()
			list.RecordPageInput = in.RecordPageInput
			return h.list(ctx, list)
		})
	rest.Serve(r, "count-dead-letters", "GET /tasks/queue/dead-letter/causes", "Count dead letters by type and cause",
		"The newest 5,000. A bulk operation retries or discards those of a type and cause.", h.countDeadLetters,
		rest.Held)
}

func (in *listInput) filter(labels map[string]string) *api.TaskFilter {
	return &api.TaskFilter{
		Cluster: string(in.Cluster), Type: string(in.Type), Tenant: string(in.Tenant), Labels: labels, Cause: in.Cause,
		SubmittedAfter: in.After, SubmittedBefore: in.Before,
	}
}

// query is the visibility query for the list.
func (in *listInput) query(ctx context.Context, labels map[string]string) string {
	query := contract.TaskQuery(in.filter(labels))
	if len(in.Status) > 0 {
		query += " AND " + contract.WithStatus(in.Status...)
	}
	if in.Agent != "" {
		query += " AND " + contract.OfAgent(string(in.Agent))
	}
	if in.Prefix != "" {
		prefix, own := rest.OwnID(ctx, in.Prefix)
		if !own {
			prefix = in.Prefix // another tenant's: with the tenant's term nothing is found
		}
		query += " AND " + contract.WithIDPrefix(prefix)
	}
	return query
}

func (h *Handlers) list(ctx context.Context, in *listInput) (found rest.Page[api.Task], err error) {
	labels, err := parseLabels(in.Label)
	if err != nil {
		return found, rest.Invalid("query.label", err)
	}
	if in.Tenant, err = rest.OwnTenant(ctx, in.Tenant); err != nil {
		return found, err
	}
	read, page := rest.InTurn(h.Store.Tasks().Newest), in.PageSize
	filter := in.filter(labels)
	if in.Stands != "" && len(in.Status) == 0 {
		in.Status = []string{string(contract.TaskWaiting)}
	}
	if text := strings.ToLower(in.Text); text != "" || in.Cause != "" || in.Stands != "" {
		blocked := h.blocked(ctx)
		read, page = searched(read, func(t *store.Task) bool {
			return t.Matches(filter) && hasText(&t.Task, text) && (in.Stands == "" || blocked(t))
		}), searchedPage
	}
	if err := rest.ReservePage(ctx, 2*page); err != nil { // Newest looks at twice as many
		return found, err
	}
	of := *in
	of.After = time.Time{} // a page token fits however far back the list goes: "the last hour" goes on
	list := of.query(ctx, labels)
	token, err := h.PageTokens.Open(list, in.PageToken)
	if err != nil {
		return found, err
	}
	tasks, after, err := read(ctx, in.query(ctx, labels), in.PageSize, token)
	if err != nil {
		return found, h.Answer(err, "list tasks", protocol.CodeNotFound)
	}
	found.Next = h.PageTokens.Seal(list, after)
	done, err := httpapi.Turn(ctx)
	if err != nil {
		return found, err
	}
	defer done()
	h.Store.Tasks().RefineAll(ctx, tasks)
	tasks = slices.DeleteFunc(tasks, func(t store.Task) bool {
		return !matchesAny(t.Status, in.Status) || !t.Matches(filter)
	})
	soon, stop := context.WithTimeout(ctx, explainTimeout)
	defer stop()
	h.explainAll(soon, tasks, false)
	for i := range tasks {
		found.Items = append(found.Items, tasks[i].Task)
	}
	return found, nil
}

const (
	searchedPage = 250
	maxSearched  = 5000
	searchedFor  = 2 * time.Second
)

// countDeadLetters counts the newest dead letters.
func (h *Handlers) countDeadLetters(ctx context.Context, in *DeadLettersInput) (out api.DeadLetters, err error) {
	list := in.list()
	if list.Tenant, err = rest.OwnTenant(ctx, in.Tenant); err != nil {
		return out, err
	}
	if err := rest.ReservePage(ctx, searchedPage); err != nil {
		return out, err
	}
	filter, read := list.filter(nil), rest.InTurn(h.Store.Tasks().Page)
	groups := map[[2]string]*api.DeadLetterGroup{}
	var token []byte
	for range maxSearched / searchedPage {
		page, next, err := read(ctx, list.query(ctx, nil), searchedPage, token)
		if err != nil {
			return out, h.Answer(err, "list dead letters", protocol.CodeNotFound)
		}
		for i := range page {
			if t := &page[i]; t.DeadLetter != nil && t.Matches(filter) {
				out.Total++
				group(groups, &t.Task)
			}
		}
		if token = next; len(next) == 0 {
			break
		}
	}
	out.More, out.Groups = len(token) > 0, make([]api.DeadLetterGroup, 0, len(groups))
	for _, g := range groups {
		out.Groups = append(out.Groups, *g)
	}
	slices.SortFunc(out.Groups, func(a, b api.DeadLetterGroup) int {
		return cmp.Or(b.Count-a.Count, cmp.Compare(a.Type, b.Type), cmp.Compare(a.Cause, b.Cause))
	})
	return out, nil
}

// group counts a dead letter in its group.
func group(groups map[[2]string]*api.DeadLetterGroup, t *api.Task) {
	key := [2]string{t.Type, t.DeadLetter.Kind}
	g := groups[key]
	if g == nil {
		g = &api.DeadLetterGroup{Type: t.Type, Cause: t.DeadLetter.Kind, Newest: t.ID, Why: t.DeadLetter.Cause,
			Since: t.DeadLetter.Since}
		groups[key] = g
	}
	g.Count++
	if t.DeadLetter.Since.Before(g.Since) {
		g.Since = t.DeadLetter.Since
	}
}

// searched reads pages and keeps the wanted tasks. If the client's other requests hold its turn for long, it answers
// with what it has found so far.
func searched(read rest.Read[store.Task], wanted func(*store.Task) bool) rest.Read[store.Task] {
	return func(
		ctx context.Context, query string, size int, token []byte,
	) (found []store.Task, next []byte, err error) {
		began := time.Now()
		for searched := 0; searched < maxSearched && time.Since(began) < searchedFor; searched += searchedPage {
			page, after, err := read(ctx, query, searchedPage, token)
			if _, notYet := httpapi.Code(err); notYet && searched > 0 {
				break
			}
			if err != nil {
				return nil, nil, err
			}
			for i := range page {
				if !wanted(&page[i]) {
					continue
				}
				if found = append(found, page[i]); len(found) == size {
					next, err = store.NewestAfter(page[:i+1], token)
					return found, next, err
				}
			}
			if token = after; len(after) == 0 {
				break
			}
		}
		return found, token, nil
	}
}

// blocked reports whether no agent can run a task. It reads each cluster once. Tasks of a cluster that does not answer,
// or that is for other tenants, are not blocked.
func (h *Handlers) blocked(ctx context.Context) func(*store.Task) bool {
	views := map[string]*cluster.Cluster{}
	return func(t *store.Task) bool {
		if _, asked := views[t.Cluster]; !asked {
			views[t.Cluster] = nil
			if view, err := h.View(ctx, t.Cluster); err == nil {
				views[t.Cluster] = &view.Cluster
			}
		}
		c, needs := views[t.Cluster], needsOf(t)
		return c != nil && c.Config.IsFor(t.Tenant) && diagnosis.Blocked(c, &needs)
	}
}

// hasText reports whether a text, in lower case, is in what lists show of a task.
func hasText(t *api.Task, text string) bool {
	texts := append([]string{t.ID, t.Type, t.Cluster, t.Tenant, t.Schedule, t.Agent}, t.RanOn...)
	for name, value := range t.Labels {
		texts = append(texts, name+"="+value)
	}
	if t.DeadLetter != nil {
		texts = append(texts, t.DeadLetter.Cause)
	}
	return slices.ContainsFunc(texts, func(has string) bool { return strings.Contains(strings.ToLower(has), text) })
}

// matchesAny reports whether a status is one of those that are wanted; none: any is.
func matchesAny(status api.TaskStatus, wanted []string) bool {
	return len(wanted) == 0 || slices.ContainsFunc(wanted, func(one string) bool {
		return one == string(status) ||
			one == string(contract.TaskWaiting) && (status == api.TaskQueued || status == api.TaskRetryWait)
	})
}

// parseLabels reads the labels that a list asks for.
func parseLabels(list []string) (map[string]string, error) {
	labels := make(map[string]string, len(list))
	for _, label := range list {
		i := strings.IndexAny(label, "=:")
		if i < 0 || api.ValidateID("label name", label[:i]) != nil {
			return nil, errors.New("must be name=value or name:value, with a label's name")
		}
		name, value := label[:i], label[i+1:]
		if other, twice := labels[name]; twice && other != value {
			return nil, errors.New("asks for two values of one label: no task has both")
		}
		labels[name] = value
	}
	return labels, nil
}

package store

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
)

// newestLooks bounds the pages of visibility that one page of the newest tasks may cost. Where it does not suffice, as
// after a thousand old tasks ended at once, a task may come later than its submission would have it.
const newestLooks = 20

// place is where a page ended: at a time of submission, with the tasks of that time that the page had.
type place struct {
	At   time.Time `json:"at"`
	Seen []string  `json:"seen"`
}

// entry is what lists are sorted by.
type entry struct {
	id              string
	created, closed *time.Time
}

// Newest is one page of the tasks that a visibility query finds, newest first, and the token of the next page.
func (s Tasks) Newest(ctx context.Context, query string, size int, token []byte) ([]Task, []byte, error) {
	return newest(ctx, s.Store, OfInfo, taskEntry, query, size, token)
}

// Newest is one page of the runs that a visibility query finds, newest first, and the token of the next page.
func (s Runs) Newest(ctx context.Context, query string, size int, token []byte) ([]api.RunEntry, []byte, error) {
	runEntry := func(r *api.RunEntry) entry { return entry{r.ID, r.StartedAt, r.EndedAt} }
	return newest(ctx, s.Store, OfRunInfo, runEntry, query, size, token)
}

// Newest is one page of the arrays that a visibility query finds, newest first, and the token of the next page.
func (s Arrays) Newest(ctx context.Context, query string, size int, token []byte) ([]api.ArrayEntry, []byte, error) {
	arrayEntry := func(a *api.ArrayEntry) entry { return entry{a.ID, a.CreatedAt, a.ClosedAt} }
	return newest(ctx, s.Store, ofArrayInfo, arrayEntry, query, size, token)
}

func readAll[T any](infos []*workflowpb.WorkflowExecutionInfo, read func(*workflowpb.WorkflowExecutionInfo) T) []T {
	all := make([]T, len(infos))
	for i, info := range infos {
		all[i] = read(info)
	}
	return all
}

func taskEntry(t *Task) entry { return entry{t.ID, t.CreatedAt, t.ClosedAt} }

// newest is one page of what a visibility query finds, by its submission, newest first, and the token of the next page.
// Visibility sorts open workflows first, and then the last closed. Each was submitted before it ended, so the search
// stops at the first that ended before all of the page were submitted.
func newest[T any](
	ctx context.Context, s Store, read func(*workflowpb.WorkflowExecutionInfo) T, of func(*T) entry,
	query string, size int, token []byte,
) (found []T, next []byte, err error) {
	var from place
	if len(token) > 0 {
		if err := json.Unmarshal(token, &from); err != nil {
			return nil, nil, fmt.Errorf("read a page's token: %w", err)
		}
		query += " AND StartTime <= " + contract.Quoted(from.At.Format(time.RFC3339Nano))
	}
	wanted := size + 1
	look := min(listPage, 2*wanted+len(from.Seen))
	seen := map[string]bool{}
	for _, id := range from.Seen {
		seen[id] = true
	}
	var after []byte
	for range newestLooks {
		infos, more, err := s.Page(ctx, query, look, after)
		if err != nil {
			return nil, nil, err
		}
		page := readAll(infos, read)
		for i := range page {
			if id := of(&page[i]).id; !seen[id] {
				seen[id] = true
				found = append(found, page[i])
			}
		}
		slices.SortStableFunc(found, func(a, b T) int {
			x, y := of(&a), of(&b)
			return cmp.Or(y.submitted().Compare(x.submitted()), cmp.Compare(x.id, y.id))
		})
		if after = more; len(more) == 0 || len(page) == 0 {
			break
		}
		if len(found) < wanted {
			continue
		}
		ended := of(&page[len(page)-1]).closed
		if ended == nil { // open ones come by their submission, and there may be many
			query, after = query+" AND ExecutionStatus != '"+enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING.String()+"'", nil
			continue
		}
		if ended.Before(of(&found[wanted-1]).submitted()) {
			break
		}
	}
	if len(found) <= size {
		return found, nil, nil
	}
	found = found[:size]
	next, err = newestAfter(found, of, token)
	return found, next, err
}

// NewestAfter is the token of the page after these tasks, which were read with a token.
func NewestAfter(tasks []Task, token []byte) ([]byte, error) {
	return newestAfter(tasks, taskEntry, token)
}

func newestAfter[T any](found []T, of func(*T) entry, token []byte) ([]byte, error) {
	var before place
	if len(token) > 0 {
		if err := json.Unmarshal(token, &before); err != nil {
			return nil, fmt.Errorf("read a page's token: %w", err)
		}
	}
	end := place{At: of(&found[len(found)-1]).submitted()}
	if end.At.Equal(before.At) {
		end.Seen = before.Seen
	}
	for i := range found {
		if e := of(&found[i]); e.submitted().Equal(end.At) {
			end.Seen = append(end.Seen, e.id)
		}
	}
	return json.Marshal(end)
}

func (e entry) submitted() time.Time {
	if e.created == nil {
		return time.Time{}
	}
	return *e.created
}

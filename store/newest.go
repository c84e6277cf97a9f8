package store

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	enumspb "go.temporal.io/api/enums/v1"

	"mainstay.dev/mainstay/contract"
)

// newestLooks bounds the pages of visibility that one page of the newest tasks may cost. Where it does not suffice, as
// after a thousand old tasks ended at once, a task may come later than its submission would have it.
const newestLooks = 20

// place is where a page ended: at tasks submitted at a time, of which the page had some.
type place struct {
	At   time.Time `json:"at"`
	Seen []string  `json:"seen"`
}

// Newest is one page of the tasks that a visibility query finds, by their submission, newest first, and the token of
// the next page. Visibility itself has open workflows first, and then those that closed last. A task was submitted
// before it ended, so the search stops at the first that ended before all of the page were submitted.
func (s Tasks) Newest(
	ctx context.Context, query string, size int, token []byte,
) (tasks []Task, next []byte, err error) {
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
		page, more, err := s.Page(ctx, query, look, after)
		if err != nil {
			return nil, nil, err
		}
		for _, t := range page {
			if !seen[t.ID] {
				seen[t.ID] = true
				tasks = append(tasks, t)
			}
		}
		slices.SortStableFunc(tasks, newerFirst)
		if after = more; len(more) == 0 || len(page) == 0 {
			break
		}
		if len(tasks) < wanted {
			continue
		}
		ended := page[len(page)-1].ClosedAt
		if ended == nil { // open ones come by their submission, and there may be many
			query, after = query+" AND ExecutionStatus != '"+enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING.String()+"'", nil
			continue
		}
		if ended.Before(submitted(&tasks[wanted-1])) {
			break
		}
	}
	if len(tasks) <= size {
		return tasks, nil, nil
	}
	tasks = tasks[:size]
	next, err = NewestAfter(tasks, token)
	return tasks, next, err
}

// NewestAfter is the token of the page after these tasks, which were read with a token.
func NewestAfter(tasks []Task, token []byte) ([]byte, error) {
	var before place
	if len(token) > 0 {
		if err := json.Unmarshal(token, &before); err != nil {
			return nil, fmt.Errorf("read a page's token: %w", err)
		}
	}
	end := place{At: submitted(&tasks[len(tasks)-1])}
	if end.At.Equal(before.At) {
		end.Seen = before.Seen
	}
	for i := range tasks {
		if submitted(&tasks[i]).Equal(end.At) {
			end.Seen = append(end.Seen, tasks[i].ID)
		}
	}
	return json.Marshal(end)
}

func newerFirst(a, b Task) int {
	return cmp.Or(submitted(&b).Compare(submitted(&a)), cmp.Compare(a.ID, b.ID))
}

func submitted(t *Task) time.Time {
	if t.CreatedAt == nil {
		return time.Time{}
	}
	return *t.CreatedAt
}

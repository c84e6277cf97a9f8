package contract

import (
	"context"
	"time"

	"go.temporal.io/sdk/client"

	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
)

// BulkUpdateID is the id of every update of a bulk operation, so that a task which is asked twice acts once and answers
// the same.
func BulkUpdateID(bulk string) string { return "bulk-" + bulk }

// Messages of the Bulk workflow.
var (
	BulkQuery        = Query[BulkState]{"state"}
	BulkCancelUpdate = Update[CancelRequest, BulkState]{"cancel"}
	// BulkPageActivity acts on one page of the tasks of a bulk operation.
	BulkPageActivity = Activity[BulkPageInput, BulkPageResult]{"BulkPage"}
)

// BulkPageSize is how many tasks one activity of a bulk operation acts on.
const BulkPageSize = 100

// BulkSpec is a bulk operation as it was asked for.
type BulkSpec task.Bulk

// Query is the visibility query for the tasks it acts on. A retry, say, is only for dead letters, so it asks for
// nothing else.
func (b *BulkSpec) Query() string {
	filter := b.Filter
	if only := b.Action.Statuses(); len(only) == 1 {
		filter.Status = only[0]
	}
	return OpenTaskQuery(&filter)
}

// Send sends a task the update that does it, under an id.
func (b *BulkSpec) Send(ctx context.Context, c client.Client, task, updateID string) (Done, error) {
	workflowID, key := Locate(task)
	of := ForTask{Task: key, By: b.By}
	switch b.Action {
	case api.BulkRetry:
		return RetryUpdate.SendOnce(ctx, c, workflowID, updateID, RetryRequest{ForTask: of, Reason: b.Reason})
	case api.BulkDiscard:
		return DiscardUpdate.SendOnce(ctx, c, workflowID, updateID, DiscardRequest{ForTask: of, Reason: b.Reason})
	case api.BulkReview:
		return ReviewUpdate.SendOnce(ctx, c, workflowID, updateID,
			ReviewRequest{ForTask: of, Decision: b.Decision, Reason: b.Reason})
	case api.BulkPriority:
		request := ReprioritizeRequest{ForTask: of, Priority: b.Priority, Reason: b.Reason}
		return ReprioritizeUpdate.SendOnce(ctx, c, workflowID, updateID, request)
	}
	return CancelUpdate.SendOnce(ctx, c, workflowID, updateID, CancelRequest{ForTask: of, Reason: b.Reason})
}

// BulkInput starts a Bulk workflow.
type BulkInput struct {
	ID   string   `json:"id"`
	Spec BulkSpec `json:"spec"`
	// Expected is how many tasks were found when it was asked for.
	Expected int `json:"expected"`
	// Carried is what a run of the workflow hands to the next.
	Carried *BulkCarried `json:"carried,omitempty"`
}

// BulkCarried is a Bulk workflow's state over continue-as-new.
type BulkCarried struct {
	State BulkState `json:"state"`
	Place BulkPlace `json:"place"`
}

// BulkPlace is how far a bulk operation came: the page after it, or how many of its ids are done.
type BulkPlace struct {
	Token []byte `json:"token,omitempty"`
	IDs   int    `json:"ids,omitempty"`
}

// BulkState is what the query BulkQuery answers and what a Bulk workflow returns.
type BulkState struct {
	Status    api.BulkStatus `json:"status"`
	Why       string         `json:"why,omitempty"`
	Expected  int            `json:"expected"`
	StartedAt time.Time      `json:"started_at"`
	BulkCounts
}

// BulkCounts count the tasks so far by their outcome.
type BulkCounts struct {
	Matched  int               `json:"matched"`
	Done     int               `json:"done"`
	Skipped  int               `json:"skipped"` // no longer in a state for it
	Failed   int               `json:"failed"`
	Examples []api.BulkExample `json:"examples,omitempty"`
}

// maxExamples bounds the examples of each outcome.
const maxExamples = 20

// Count adds the outcome of one task.
func (c *BulkCounts) Count(example api.BulkExample) {
	switch example.Outcome {
	case api.BulkTaskDone:
		c.Done++
	case api.BulkTaskSkipped:
		c.Skipped++
	case api.BulkTaskFailed:
		c.Failed++
	default:
		return
	}
	c.Matched++
	c.remember(example)
}

// Add adds the counts of a page.
func (c *BulkCounts) Add(page BulkCounts) {
	c.Matched, c.Done = c.Matched+page.Matched, c.Done+page.Done
	c.Skipped, c.Failed = c.Skipped+page.Skipped, c.Failed+page.Failed
	for _, example := range page.Examples {
		c.remember(example)
	}
}

func (c *BulkCounts) remember(example api.BulkExample) {
	if example.Outcome == api.BulkTaskDone {
		return
	}
	same := 0
	for _, kept := range c.Examples {
		if kept.Outcome == example.Outcome {
			same++
		}
	}
	if same < maxExamples {
		c.Examples = append(c.Examples, example)
	}
}

// BulkPageInput is the input of BulkPageActivity: the tasks named by IDs, else the page of the query after Token.
type BulkPageInput struct {
	Bulk  string   `json:"bulk"`
	Spec  BulkSpec `json:"spec"`
	IDs   []string `json:"ids,omitempty"`
	Token []byte   `json:"token,omitempty"`
}

// BulkPageResult is the outcome of a page. No Next: it was the last.
type BulkPageResult struct {
	Counts BulkCounts `json:"counts"`
	Next   []byte     `json:"next,omitempty"`
}

// Package store reads and changes in Temporal what Mainstay keeps there: clusters, tasks and the records of workflows.
// It knows how Temporal answers; what an answer means to a client, a workflow or a hub is for them to say.
package store

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"strings"
	"time"

	"github.com/google/uuid"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"google.golang.org/protobuf/types/known/timestamppb"

	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/backoff"
)

const (
	// listPage is how many entries one call to visibility or to the live registry brings.
	listPage = 1000
	// atOnce bounds the calls to Temporal at the same time for one purpose.
	atOnce = 32
)

// Store is a namespace of Temporal.
type Store struct {
	Client    client.Client
	Namespace string // for the calls the SDK's client has no method for
}

// DefaultNamespace is the one that the SDK's client uses if none is named.
const DefaultNamespace = client.DefaultNamespace

// Workflows are all workflows that a visibility query finds; what changed within the last second may be missing. An
// error ends them.
func (s Store) Workflows(ctx context.Context, query string) iter.Seq2[*workflowpb.WorkflowExecutionInfo, error] {
	return func(yield func(*workflowpb.WorkflowExecutionInfo, error) bool) {
		for token := []byte(nil); ; {
			page, next, err := s.Page(ctx, query, listPage, token)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, info := range page {
				if !yield(info, nil) {
					return
				}
			}
			if token = next; len(token) == 0 {
				return
			}
		}
	}
}

// Page is one page of the workflows that a visibility query finds, and the token of the next; without one it is the
// last.
func (s Store) Page(
	ctx context.Context, query string, size int, token []byte,
) (page []*workflowpb.WorkflowExecutionInfo, next []byte, err error) {
	answer, err := s.Client.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
		Namespace: s.Namespace, PageSize: int32(size), NextPageToken: token, Query: query,
	})
	return answer.GetExecutions(), answer.GetNextPageToken(), err
}

// Count is how many workflows a visibility query finds.
func (s Store) Count(ctx context.Context, query string) (int64, error) {
	answer, err := s.Client.CountWorkflow(ctx, &workflowservice.CountWorkflowExecutionsRequest{
		Namespace: s.Namespace, Query: query,
	})
	return answer.GetCount(), err
}

// Describe is what Temporal itself knows of a workflow's newest run, without asking a worker.
func (s Store) Describe(ctx context.Context, workflowID string) (*workflowpb.WorkflowExecutionInfo, error) {
	d, err := s.Client.DescribeWorkflowExecution(ctx, workflowID, "")
	return d.GetWorkflowExecutionInfo(), err
}

// Cancel asks a workflow to end.
func (s Store) Cancel(ctx context.Context, workflowID string) error {
	return s.Client.CancelWorkflow(ctx, workflowID, "")
}

// How often, and how far apart, an update is tried that Temporal gave up.
const (
	updateTries = 4
	updatePause = 50 * time.Millisecond
)

// Update runs an update of a workflow to its end. When nobody answered in time, the change may be made yet, and the
// error is Unsure.
func Update[In, Out any](
	ctx context.Context, s Store, u contract.Update[In, Out], workflowID string, in In,
) (Out, error) {
	id := uuid.NewString()
	answer, err := u.SendOnce(ctx, s.Client, workflowID, id, in)
	// Temporal gives an update up when the workflow moves on at the same moment. Under its id it is made at most once.
	pause := backoff.Backoff{First: updatePause, Limit: time.Second}
	for try := 1; isAny[*serviceerror.WorkflowNotReady](err) && try < updateTries && ctx.Err() == nil; try++ {
		pause.Pause(ctx)
		answer, err = u.SendOnce(ctx, s.Client, workflowID, id, in)
	}
	if err = CancelFull(ctx, s, u, workflowID, in, err); KindOf(err) == Unavailable {
		return answer, &unsureError{err}
	}
	return answer, err
}

// CancelFull is for an update that Temporal did not take because the workflow had too many. One that cancels the whole
// of a task, an array or a run is made by Temporal's own request instead, which has no reason and no one who asks.
// Other errors stay.
func CancelFull[In, Out any](
	ctx context.Context, s Store, u contract.Update[In, Out], workflowID string, in In, err error,
) error {
	if KindOf(err) != Full {
		return err
	}
	whole := u.Name == contract.CancelRunUpdate.Name
	switch r := any(in).(type) {
	case contract.CancelRequest:
		whole = r.Task == ""
	case contract.ArrayRequest:
		whole = r.Action == contract.CancelArray
	}
	if !whole {
		return err
	}
	return s.Cancel(ctx, workflowID)
}

// Signal sends a signal to a workflow.
func Signal[T any](ctx context.Context, s Store, signal contract.Signal[T], workflowID string, in T) error {
	return signal.Send(ctx, s.Client, workflowID, in)
}

// ask puts a query to a workflow that must be open; deleted is the error of one that has ended.
func (s Store) ask(ctx context.Context, workflowID, query, deleted string) (converter.EncodedValue, error) {
	for {
		answer, err := s.Client.QueryWorkflowWithOptions(ctx, &client.QueryWorkflowWithOptionsRequest{
			WorkflowID:           workflowID,
			QueryType:            query,
			QueryRejectCondition: enumspb.QUERY_REJECT_CONDITION_NOT_OPEN,
		})
		switch {
		case isAny[*serviceerror.FailedPrecondition](err): // no worker has asked for work recently
			return nil, serviceerror.NewUnavailable(err.Error())
		case err != nil:
			return nil, err
		case answer.QueryRejected == nil:
			return answer.QueryResult, nil
		case answer.QueryRejected.GetStatus() != enumspb.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW:
			return nil, serviceerror.NewNotFound(deleted)
		}
		// It went on in a new run at that moment.
	}
}

// TimeOf is a time of Temporal's in UTC, nil when there is none.
func TimeOf(t *timestamppb.Timestamp) *time.Time {
	if t == nil || t.AsTime().IsZero() {
		return nil
	}
	at := t.AsTime().UTC()
	return &at
}

// Start is a workflow that is to be started.
type Start struct {
	Type, ID, Summary string
	// Cluster, Tenant and Job are what it is about, for lists to find; empty: none. Workers share their work fairly
	// among tenants.
	Cluster, Tenant, Job string
	Memo                 map[string]any
	// Join takes a running one with the same id for the one that is to be started; else that is an error of the kind
	// Exists.
	Join bool
	// Timeout ends it; zero: nothing does.
	Timeout time.Duration
}

// Start starts a workflow, and answers its run. One with the same id that has ended is no obstacle.
func (s Store) Start(ctx context.Context, start *Start, input any) (runID string, err error) {
	conflict := enumspb.WORKFLOW_ID_CONFLICT_POLICY_FAIL
	if start.Join {
		conflict = enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING
	}
	var attributes []temporal.SearchAttributeUpdate
	if start.Cluster != "" {
		attributes = append(attributes, contract.AttrCluster.ValueSet(start.Cluster))
	}
	if start.Tenant != "" {
		attributes = append(attributes, contract.AttrTenant.ValueSet(start.Tenant))
	}
	if start.Job != "" {
		attributes = append(attributes, contract.AttrJob.ValueSet(start.Job))
	}
	run, err := s.Client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID:                                       start.ID,
		TaskQueue:                                contract.WorkerQueue,
		WorkflowIDReusePolicy:                    enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		WorkflowIDConflictPolicy:                 conflict,
		WorkflowExecutionErrorWhenAlreadyStarted: true,
		WorkflowExecutionTimeout:                 start.Timeout,
		TypedSearchAttributes:                    temporal.NewSearchAttributes(attributes...),
		Memo:                                     start.Memo,
		StaticSummary:                            start.Summary,
		Priority:                                 temporal.Priority{FairnessKey: start.Tenant},
	}, start.Type, input)
	if err != nil {
		return "", err
	}
	return run.GetRunID(), nil
}

// Tokens are the API's tokens, from the memo of the workflow that keeps them, which needs no worker.
func (s Store) Tokens(ctx context.Context) ([]access.Record, error) {
	tokens, _, err := s.Access(ctx)
	return tokens, err
}

// Access are the API's tokens as by Tokens, and the browsers' sessions that were signed out.
func (s Store) Access(ctx context.Context) (tokens []access.Record, ended []access.EndedSession, err error) {
	info, err := s.Describe(ctx, contract.AccessWorkflowID)
	if KindOf(err) == NotFound {
		return nil, nil, nil // no token was made yet
	}
	if err != nil {
		return nil, nil, fmt.Errorf("describe the workflow of the tokens: %w", err)
	}
	for name, into := range map[string]any{contract.MemoTokens: &tokens, contract.MemoEnded: &ended} {
		field := info.GetMemo().GetFields()[name]
		if field == nil {
			continue // it has just been started, or no session was ended
		}
		if err := contract.Payloads.FromPayload(field, into); err != nil {
			return nil, nil, fmt.Errorf("read the tokens: %w", err)
		}
	}
	return tokens, ended, nil
}

// UpdateAccess changes the workflow that keeps the tokens. The first change starts it.
func UpdateAccess[In, Out any](ctx context.Context, s Store, u contract.Update[In, Out], in In) (out Out, err error) {
	out, err = Update(ctx, s, u, contract.AccessWorkflowID, in)
	if KindOf(err) != NotFound {
		return out, err
	}
	_, err = s.Start(ctx, &Start{
		Type:    contract.AccessWorkflow,
		ID:      contract.AccessWorkflowID,
		Summary: "the API's tokens",
		Memo:    map[string]any{contract.MemoTokens: []access.Record{}},
		Join:    true,
	}, contract.AccessInput{})
	if err != nil && KindOf(err) != Exists {
		return out, err
	}
	return Update(ctx, s, u, contract.AccessWorkflowID, in)
}

// BatchFanOut bounds the changes of one batch, or bulk operation, that are made at the same time. Temporal's store
// takes two for each core almost as quickly as many more, and others wait for each one more.
func BatchFanOut() int { return min(32, 2*runtime.GOMAXPROCS(0)) }

// Kind is what an error of Temporal means to the one who asked.
type Kind int

// The kinds of errors.
const (
	Other       Kind = iota // also no error at all
	NotFound                // it does not exist, or a change came after its end
	Exists                  // there is one with this id
	Refused                 // its present state does not allow the change; Refusal says why
	Outdated                // the change was meant for an older state
	Unavailable             // Temporal, or a worker for it, did not answer in time, or a workflow has much to do
	Unsure                  // the same of a change, which may be made yet
	Blocked                 // Temporal does not allow it now
	Full                    // Temporal takes no more updates of the workflow
	Invalid                 // Temporal does not understand it
	Unsupported             // this Temporal is too old for it
)

// unsureError is of a change that may yet be made.
type unsureError struct{ err error }

func (e *unsureError) Error() string { return e.err.Error() }
func (e *unsureError) Unwrap() error { return e.err }

// tooManyUpdates is in Temporal's message about that; nothing else distinguishes it from other preconditions.
const tooManyUpdates = "limit on the total number of distinct updates"

// KindOf is the one place that classifies errors of Temporal.
func KindOf(err error) Kind {
	var application *temporal.ApplicationError
	var precondition *serviceerror.FailedPrecondition
	switch {
	case err == nil:
		return Other
	case errors.As(err, &application) && application.Type() == contract.Refused:
		return Refused
	case errors.As(err, &application) && application.Type() == contract.Outdated:
		return Outdated
	case isAny[*serviceerror.NotFound](err),
		errors.As(err, &application) && application.Type() == contract.UnknownToken:
		return NotFound
	case isAny[*serviceerror.WorkflowExecutionAlreadyStarted](err), isAny[*serviceerror.AlreadyExists](err):
		return Exists
	case isAny[*unsureError](err):
		return Unsure
	case errors.As(err, &application) && application.Type() == contract.Busy:
		return Unavailable
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled),
		isAny[*serviceerror.Unavailable](err),
		isAny[*serviceerror.DeadlineExceeded](err),
		isAny[*serviceerror.Canceled](err),
		isAny[*serviceerror.Aborted](err),
		isAny[*serviceerror.ResourceExhausted](err),
		isAny[*serviceerror.NamespaceUnavailable](err),
		isAny[*serviceerror.NamespaceNotActive](err),
		isAny[*serviceerror.WorkflowNotReady](err),
		isAny[*client.WorkflowUpdateServiceTimeoutOrCanceledError](err):
		return Unavailable
	case errors.As(err, &precondition) && strings.Contains(precondition.Message, tooManyUpdates):
		return Full
	case errors.As(err, &precondition):
		return Blocked
	case isAny[*serviceerror.InvalidArgument](err):
		return Invalid
	case isAny[*serviceerror.Unimplemented](err):
		return Unsupported
	}
	return Other
}

// Refusal is why a workflow refused a change, in words for people.
func Refusal(err error) string {
	if application, ok := errors.AsType[*temporal.ApplicationError](err); ok {
		return application.Message()
	}
	return ""
}

func isAny[E error](err error) bool {
	var e E
	return errors.As(err, &e)
}

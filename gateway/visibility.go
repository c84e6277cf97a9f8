package gateway

import (
	"context"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"

	"mainstay.dev/mainstay/protocol"
)

// workflowPage reads one page of the workflows that a visibility query finds. A page token belongs to its query.
func (g *Gateway) workflowPage(ctx context.Context, doing, query string, size int, pageToken string) (page []*workflowpb.WorkflowExecutionInfo, next string, err error) {
	token, err := openToken(query, pageToken)
	if err != nil {
		return nil, "", err
	}
	answer, err := g.client.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
		Namespace: g.namespace, PageSize: int32(size), NextPageToken: token, Query: query,
	})
	if err != nil {
		return nil, "", g.answer(err, doing, protocol.CodeNotFound)
	}
	return answer.GetExecutions(), sealToken(query, answer.GetNextPageToken()), nil
}

// allOf is the query of those that meet all terms; empty terms are left out.
func allOf(terms ...string) string {
	kept := terms[:0:0]
	for _, term := range terms {
		if term != "" {
			kept = append(kept, term)
		}
	}
	return strings.Join(kept, " AND ")
}

// filter is the term of an optional filter.
func filter(attribute, value string) string {
	if value == "" {
		return ""
	}
	return equals(attribute, value)
}

func executionIs(s enumspb.WorkflowExecutionStatus) string {
	return equals("ExecutionStatus", s.String())
}

func equals(attribute, value string) string { return attribute + " = " + quoted(value) }

// between is the term for a time at or after the one and before the other; zero times do not bound it.
func between(attribute string, from, to time.Time) string {
	var terms []string
	if !from.IsZero() {
		terms = append(terms, attribute+" >= "+quoted(from.UTC().Format(time.RFC3339Nano)))
	}
	if !to.IsZero() {
		terms = append(terms, attribute+" < "+quoted(to.UTC().Format(time.RFC3339Nano)))
	}
	return strings.Join(terms, " AND ")
}

// quoted is a value as a string of the query language.
func quoted(value string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(value) + "'"
}

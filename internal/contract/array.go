package contract

import (
	"strings"
	"time"

	"mainstay.dev/mainstay/internal/array"
	"mainstay.dev/sdk/api"
)

// ArrayWorkflow carries an array: it delivers its elements in bundles.
const ArrayWorkflow = "Array"

// ArrayWorkflowID is the id of the workflow of an array.
func ArrayWorkflowID(id string) string { return "array/" + id }

// ArrayOfWorkflowID is the inverse of ArrayWorkflowID.
func ArrayOfWorkflowID(id string) (string, bool) { return strings.CutPrefix(id, "array/") }

// ArrayInput starts an Array workflow. The array's id is its workflow's, without the prefix.
type ArrayInput struct {
	array.Definition
	Lane string `json:"lane"`
	// DeadLetterRetention is the cluster's; zero: api.DefaultDeadLetterRetention.
	DeadLetterRetention api.Duration `json:"dead_letter_retention,omitempty"`
	By                  string       `json:"by,omitempty"`
	// Step: the array is a run's step, whose on_failure says what dead letters mean. They are not kept for a retry.
	Step bool `json:"step,omitempty"`
	// Carried is what a run of the workflow hands to the next.
	Carried *ArrayCarried `json:"carried,omitempty"`
}

// ArrayCarried is an Array workflow's state over continue-as-new.
type ArrayCarried struct {
	State    *array.State  `json:"state"`
	Paused   *ArrayRequest `json:"paused,omitempty"`
	Priority api.Priority  `json:"priority,omitempty"`
}

// ArrayState is the answer of a query, and what an Array workflow returns or has as its failure's detail.
type ArrayState struct {
	Status api.ArrayStatus   `json:"status"`
	Why    string            `json:"why,omitempty"`
	Counts api.ElementCounts `json:"counts"`
	// Priority is the one in force; zero: the default.
	Priority api.Priority `json:"priority,omitempty"`
	// Duplicates are results that were not accepted, because their element had one.
	Duplicates int `json:"duplicates,omitempty"`
	// Flying are the elements of the deliveries that are in lanes or with agents, by the task's id.
	Flying map[string]int `json:"flying,omitempty"`
	// Until is when dead letters are given up.
	Until *time.Time `json:"until,omitempty"`
}

// ArrayAction is what a person asks of an open array.
type ArrayAction string

// The actions.
const (
	PauseArray        ArrayAction = "pause"
	ResumeArray       ArrayAction = "resume"
	CancelArray       ArrayAction = "cancel"
	RetryArray        ArrayAction = "retry"
	ReprioritizeArray ArrayAction = "reprioritize"
)

// ArrayRequest asks for an action.
type ArrayRequest struct {
	Action   ArrayAction  `json:"action"`
	Reason   string       `json:"reason,omitempty"`
	By       string       `json:"by,omitempty"`
	Elements []int        `json:"elements,omitempty"` // with retry; none: all dead letters
	Priority api.Priority `json:"priority,omitempty"` // with reprioritize
}

// ElementsRequest asks for elements from a number on.
type ElementsRequest struct {
	Status api.ElementStatus `json:"status,omitempty"`
	From   int               `json:"from,omitempty"`
	Limit  int               `json:"limit"`
}

// ElementsPage are elements, and the number to go on from; 0: there are no more.
type ElementsPage struct {
	Elements []api.ElementEntry `json:"elements"`
	Next     int                `json:"next,omitempty"`
}

// Messages of the Array workflow.
var (
	ArrayQuery    = Query[ArrayState]{"array"}
	ElementsQuery = QueryWith[ElementsRequest, ElementsPage]{"elements"}
	ArrayUpdate   = Update[ArrayRequest, Done]{"act"}
	// ArraySignal is ArrayUpdate from another workflow. Impossible requests are ignored.
	ArraySignal = Signal[ArrayRequest]{"act"}
)

// StartOfArray makes the start of an array; weight is its tenant's in the cluster, 0 if it has none.
func StartOfArray(id string, in *ArrayInput, weight float64) TaskStart {
	start := StartOf(id, &in.Spec, weight)
	start.WorkflowID = ArrayWorkflowID(id)
	start.Summary = "array of " + start.Summary
	start.Memo[MemoElements] = in.Total()
	return start
}

// MemoElements is the number of an array's elements.
const MemoElements = "elements"

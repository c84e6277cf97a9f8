package contract

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"strings"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
)

// Search attributes of Mainstay's workflows. They are set at start. Only Status and StatusAt change later, for states
// that the execution status lacks (review, dead_letter, expired; TaskUnhandled), and RanOn, when a task ends, waits for
// a person, or is delivered again after it was lost.
var (
	AttrCluster  = temporal.NewSearchAttributeKeyKeyword("MainstayCluster")
	AttrTaskType = temporal.NewSearchAttributeKeyKeyword("MainstayTaskType")
	AttrStatus   = temporal.NewSearchAttributeKeyKeyword("MainstayStatus")
	AttrStatusAt = temporal.NewSearchAttributeKeyTime("MainstayStatusAt") // when Status was last set or removed
	AttrAgent    = temporal.NewSearchAttributeKeyKeyword("MainstayAgent")
	AttrTenant   = temporal.NewSearchAttributeKeyKeyword("MainstayTenant")
	AttrJob      = temporal.NewSearchAttributeKeyKeyword("MainstayJob") // of a job and of its runs
	AttrLabels   = temporal.NewSearchAttributeKeyKeywordList("MainstayLabels")
	AttrRanOn    = temporal.NewSearchAttributeKeyKeywordList("MainstayRanOn") // agents that had it, the last one last
)

// SearchAttributes lists them with their types, for registration.
func SearchAttributes() map[string]enumspb.IndexedValueType {
	return map[string]enumspb.IndexedValueType{
		AttrCluster.GetName():  enumspb.INDEXED_VALUE_TYPE_KEYWORD,
		AttrTaskType.GetName(): enumspb.INDEXED_VALUE_TYPE_KEYWORD,
		AttrStatus.GetName():   enumspb.INDEXED_VALUE_TYPE_KEYWORD,
		AttrStatusAt.GetName(): enumspb.INDEXED_VALUE_TYPE_DATETIME,
		AttrAgent.GetName():    enumspb.INDEXED_VALUE_TYPE_KEYWORD,
		AttrTenant.GetName():   enumspb.INDEXED_VALUE_TYPE_KEYWORD,
		AttrJob.GetName():      enumspb.INDEXED_VALUE_TYPE_KEYWORD,
		AttrLabels.GetName():   enumspb.INDEXED_VALUE_TYPE_KEYWORD_LIST,
		AttrRanOn.GetName():    enumspb.INDEXED_VALUE_TYPE_KEYWORD_LIST,
	}
}

// Keyword is the value of a search attribute, "" where it is not set.
func Keyword(fields map[string]*commonpb.Payload, attribute temporal.SearchAttributeKeyKeyword) string {
	var value string
	Decode(fields[attribute.GetName()], &value)
	return value
}

// LabelTerm is a label as the search attribute AttrLabels has it: "name=value". In the value, "%" and the characters
// that the query languages of Temporal's stores treat differently are percent-encoded.
func LabelTerm(name, value string) string {
	var b strings.Builder
	b.WriteString(name)
	b.WriteByte('=')
	for _, r := range value {
		if awkward(r) {
			for _, c := range []byte(string(r)) {
				fmt.Fprintf(&b, "%%%02X", c)
			}
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// ParseLabelTerm is the inverse of LabelTerm.
func ParseLabelTerm(term string) (name, value string) {
	name, value, _ = strings.Cut(term, "=")
	if plain, err := url.PathUnescape(value); err == nil {
		value = plain
	}
	return name, value
}

// maxLaneTerm bounds a LaneTerm, in bytes: what visibility stores take for one word.
const maxLaneTerm = 200

// LaneTerm is a lane of capabilities or resources as the search attribute AttrLabels of its tasks has it, beside their
// labels: so the tasks of a lane are found. Unlike a label it has no "=".
func LaneTerm(lane string) string {
	if len(lane) <= maxLaneTerm {
		return lane
	}
	sum := sha256.Sum256([]byte(lane))
	return "cap/#" + hex.EncodeToString(sum[:])
}

// rerunPrefix begins a RerunTerm.
const rerunPrefix = "rerun/"

// RerunTerm is the task that a task repeats as the search attribute AttrLabels has it, beside labels and lanes.
func RerunTerm(of string) string { return rerunPrefix + of }

// RerunOf is the task that a task repeats, by the terms of AttrLabels; "": none.
func RerunOf(terms []string) string {
	for _, term := range terms {
		if of, ok := strings.CutPrefix(term, rerunPrefix); ok {
			return of
		}
	}
	return ""
}

// RerunsQuery is the visibility query for the tasks that repeat one.
func RerunsQuery(of string) string {
	return Equals("WorkflowType", TaskWorkflow) + " AND " + Equals(AttrLabels.GetName(), RerunTerm(of))
}

// LabelsOf are the labels among the terms of AttrLabels; nil: there are none.
func LabelsOf(terms []string) map[string]string {
	var labels map[string]string
	for _, term := range terms {
		if !strings.Contains(term, "=") {
			continue // a LaneTerm or RerunTerm
		}
		if labels == nil {
			labels = make(map[string]string, len(terms))
		}
		name, value := ParseLabelTerm(term)
		labels[name] = value
	}
	return labels
}

// awkward: SQLite's store does not undo the escaping of quotes and backslashes, and splits lists at the heart.
func awkward(r rune) bool {
	return r < ' ' || r == 0x7f || strings.ContainsRune("%'\"`\\♡", r)
}

// Memo fields of Mainstay's workflows: facts that lists and descriptions have without asking a worker.
const (
	// MemoConfig is a cluster's configuration.
	MemoConfig = "config"
	// MemoTypes are a cluster's cluster.LaneTypes; absent: all types share a lane.
	MemoTypes = "types"
	// MemoCapabilities are a task's required capabilities: they say why it waits.
	MemoCapabilities = "required_capabilities"
	// MemoPlace is what a task asks for with place, which says why it waits.
	MemoPlace = "place"
	// MemoSafety is a task's retry safety, unless it is idempotent: it, too, says why it waits.
	MemoSafety = "retry_safety"
	// MemoSchedule is the full name of the schedule that made a task.
	MemoSchedule = "schedule"
	// MemoBulk is the BulkSpec of a bulk operation, its ids left out.
	MemoBulk = "bulk"
	// MemoDigest is api.TaskSpec's Digest of a task as it was submitted.
	MemoDigest = "digest"
	// MemoStartAt is when a task may first be delivered, if that was not at once.
	MemoStartAt = "start_at"
	// MemoExpiresIn is how long a task may wait for an agent, if that is not the default; zero: for ever. MemoExpiresAt
	// is its expires_at.
	MemoExpiresIn = "expires_in"
	MemoExpiresAt = "expires_at"
	// MemoPriority is a task's priority, once a person has changed it.
	MemoPriority = "priority"
	// MemoHealing is the HealingNote of a healing action.
	MemoHealing = "healing"
	// MemoTrace is the id of the trace in which a task was submitted, if it is recorded.
	MemoTrace = "trace"
	// MemoDeadLetter is a task's newest api.DeadLetter, its cause shortened.
	MemoDeadLetter = "dead_letter"
)

// Decode reads a field of a memo or a search attribute. It reports whether it is there and can be read.
func Decode(field *commonpb.Payload, into any) bool {
	return field != nil && Payloads.FromPayload(field, into) == nil
}

package contract

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/healing"
	"mainstay.dev/sdk/api"
)

// Workflow types of healing.
const (
	// HealingCycleWorkflow looks once at all clusters and starts an action for each thing that is to be done.
	HealingCycleWorkflow = "HealingCycle"
	// HealingActionWorkflow carries out one action and keeps its record.
	HealingActionWorkflow = "HealingAction"
)

// Activities of healing.
var (
	// ExamineFleetActivity is local: it looks at all clusters and returns those in which something may be wrong.
	ExamineFleetActivity = Activity[ExamineInput, Examined]{"ExamineFleet"}
	// HoldsAttemptsActivity runs on a hub's own queue and says which attempts its agents have.
	HoldsAttemptsActivity = Activity[HoldsAttemptsInput, HoldsAttemptsResult]{"HoldsAttempts"}
	// TuneHealingActivity brings the schedule's interval to the shortest that a cluster asks for.
	TuneHealingActivity = Activity[api.Duration, None]{"TuneHealing"}
	// AwaitFailoverActivity watches a failover by hand until it has ended.
	AwaitFailoverActivity = Activity[AwaitFailoverInput, api.FailoverRecord]{"AwaitFailover"}
	// EndOrphanActivity ends an attempt that no agent runs, so that its task is delivered again. It answers in words.
	EndOrphanActivity = Activity[EndOrphanInput, string]{"EndOrphan"}
	// AskScaleActivity makes the cluster of this name check the number of its agents.
	AskScaleActivity = Activity[string, cluster.ScalingDecision]{"AskScale"}
	// CountHealingActivity counts an action in the worker's metrics.
	CountHealingActivity = Activity[api.HealingRecord, None]{"CountHealing"}
)

// HealingCycleTimeout ends a cycle that does not come to its end. Until then no other begins by itself.
const HealingCycleTimeout = 10 * time.Minute

// HealingScheduleID is the id of the one schedule that starts the cycles. People may pause and trigger it.
const HealingScheduleID = "healing"

// healingCycleID is what the schedule's action names; Temporal appends the nominal time of each cycle.
const healingCycleID = "healing-cycle"

// HealingCycleWorkflowID is the id of a cycle that was asked for by hand; without a nonce, what the schedule names.
func HealingCycleWorkflowID(nonce string) string {
	if nonce == "" {
		return healingCycleID
	}
	return healingCycleID + "-" + nonce
}

// HealingCycleInput starts a HealingCycle workflow.
type HealingCycleInput struct {
	// Every is the schedule's interval; zero: it was asked for by hand.
	Every api.Duration `json:"every,omitempty"`
	// Cluster is the one to look at; empty: all.
	Cluster string `json:"cluster,omitempty"`
	DryRun  bool   `json:"dry_run,omitempty"`
	Reason  string `json:"reason,omitempty"`
}

// ExamineInput is the input of ExamineFleetActivity.
type ExamineInput struct {
	Every   api.Duration `json:"every,omitempty"`
	Cluster string       `json:"cluster,omitempty"`
	DryRun  bool         `json:"dry_run,omitempty"`
	At      time.Time    `json:"at"` // when the cycle was due
}

// Examined is what an examination found.
type Examined struct {
	Clusters int      `json:"clusters"`
	Agents   int      `json:"agents"`
	Silent   []string `json:"silent,omitempty"`
	// Every is the shortest interval that a cluster asks for, where that is not the schedule's.
	Every api.Duration          `json:"every,omitempty"`
	Cases []healing.HealingCase `json:"cases,omitempty"`
}

const (
	// mostExamined bounds the findings, as JSON: a workflow has a second to read them and to decide.
	mostExamined = 4 << 20
	// briefNote is how many bytes of a note about an agent are kept when all are too long.
	briefNote = 50
)

// Shorten makes the findings fit into a message: it shortens the notes about agents, and then the lists of the clusters
// with the longest.
func (e *Examined) Shorten() {
	for most := api.MaxMembers; !e.fits(); most /= 2 {
		for i := range e.Cases {
			e.Cases[i].Keep(most, briefNote)
		}
		if most == 0 {
			e.Cases = e.Cases[:len(e.Cases)/2]
		}
	}
}

func (e *Examined) fits() bool {
	data, err := json.Marshal(e)
	return len(e.Cases) == 0 || err == nil && len(data) <= mostExamined && Fits(e)
}

// HoldsAttemptsInput is the input of HoldsAttemptsActivity.
type HoldsAttemptsInput struct {
	Cluster  string                `json:"cluster"`
	Attempts []cluster.HeldAttempt `json:"attempts"`
}

// HoldsAttemptsResult are the attempts that the hub's agents have, or that wait in it.
type HoldsAttemptsResult struct {
	Held []cluster.HeldAttempt `json:"held,omitempty"`
}

// HealingActionInput starts a HealingAction workflow.
type HealingActionInput struct {
	Cycle     string              `json:"cycle,omitempty"`
	Decision  api.HealingDecision `json:"decision"`
	Policy    api.HealingPolicy   `json:"policy"`
	DecidedAt time.Time           `json:"decided_at"`
}

// HealingQuery answers while an action runs and after; the workflow also returns the record.
var HealingQuery = Query[api.HealingRecord]{"record"}

// HealingNote is what lists show of an action without asking it: its memo MemoHealing.
type HealingNote struct {
	Type     api.HealingType    `json:"type"`
	TargetID string             `json:"target_id"`
	Verdict  api.HealingVerdict `json:"verdict"`
	At       time.Time          `json:"at"`
}

// HealingActionWorkflowID is the id of the workflow of an action: one at a time for one thing.
func HealingActionWorkflowID(cluster string, t api.HealingType, target string) string {
	return "healing/" + cluster + "/" + string(t) + "/" + target
}

// HealingActionOfWorkflowID is the inverse of HealingActionWorkflowID. A target may hold slashes: a lane's name does.
func HealingActionOfWorkflowID(id string) (cluster string, t api.HealingType, target string, ok bool) {
	parts := strings.SplitN(id, "/", 4)
	if len(parts) != 4 || parts[0] != "healing" || parts[3] == "" || api.ValidateID("cluster", parts[1]) != nil {
		return "", "", "", false
	}
	return parts[1], api.HealingType(parts[2]), parts[3], true
}

// HealingActionID names an action in the REST API.
func HealingActionID(cluster string, t api.HealingType, target string, at time.Time) string {
	return fmt.Sprintf("%s:%s:%s:%s", cluster, t, target, strings.ToLower(at.UTC().Format("20060102T150405Z")))
}

// HealingDrainID is the id of the drain that an action makes: unique, and known for healing's by its name.
func HealingDrainID(clusterName, agent string, at time.Time) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(agent))
	return DrainID(clusterName, fmt.Sprintf("%s%s-%08x", cluster.HealingDrainPrefix,
		strings.ToLower(at.UTC().Format("20060102T150405Z")), h.Sum32()))
}

// AwaitFailoverInput is the input of AwaitFailoverActivity, which answers api.FailoverRecord.
type AwaitFailoverInput struct {
	Cluster string    `json:"cluster"`
	AgentID string    `json:"agent_id"`
	Epoch   int64     `json:"epoch"`
	After   time.Time `json:"after"` // failovers that began before are not meant
}

// EndOrphanInput is the input of EndOrphanActivity, which returns the outcome in words.
type EndOrphanInput struct {
	Cluster string     `json:"cluster"`
	Orphan  api.Orphan `json:"orphan"`
}

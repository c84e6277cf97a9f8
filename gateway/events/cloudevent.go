package events

import (
	"encoding/json"
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
)

// told is an event on its way to listeners.
type told struct {
	id   string
	run  string // of a task's workflow, if visibility gave it
	json []byte // as a CloudEvent, once it is published
	cluster.Event
}

func (t *told) cloudEvent(s seal) api.CloudEvent {
	source := clustersPath
	if t.Cluster != "" {
		source += "/" + t.Cluster
	}
	return api.CloudEvent{
		SpecVersion: "1.0", ID: s.name(t.id), Source: source, Type: t.Type, Subject: subjectOf(&t.Event), Time: t.Time.UTC(),
		DataContentType: "application/json", Data: t.EventData,
	}
}

// clustersPath begins the source of an event.
const clustersPath = "/api/v1/agents/clusters"

func (t *told) encode(s seal) {
	if t.json == nil {
		t.json, _ = json.Marshal(t.cloudEvent(s)) // plain structs: cannot fail
	}
}

// subjectOf is what an event is about.
func subjectOf(e *cluster.Event) string {
	what, _, _ := strings.Cut(strings.TrimPrefix(string(e.Type), api.EventPrefix), ".")
	switch {
	case what == "run", what == "step":
		return "runs/" + e.ID
	case what == "task", what == "healing" && e.TaskID != "":
		return "tasks/" + e.TaskID
	case (what == "lane" || what == "healing") && e.Lane != "":
		return "lanes/" + e.Lane
	case e.ID != "" && (what == "failover" || what == "drain" || what == "schedule"):
		return what + "s/" + e.ID
	case what == "inbound":
		return "inbound/" + e.ID
	case e.AgentID != "":
		return "agents/" + e.AgentID
	}
	return ""
}

// ofCluster gives names to the events that a cluster keeps. Events that it no longer keeps become a gap, which has the
// same name whichever gateway notices it.
func ofCluster(cluster string, answer *contract.ClusterEvents, since contract.EventsSince) []told {
	prefix := cluster + "." + strconv.FormatInt(answer.CreatedAt.UnixMilli(), 36) + "."
	list := make([]told, 0, len(answer.Events)+1)
	if answer.Missing > 0 {
		missing := answer.Missing
		if !since.From.IsZero() {
			missing = 0 // how many is not known
		}
		g := gap(before(answer.Events), cluster, "older events of the cluster are no longer kept", missing)
		g.id = prefix + "gap." + strconv.FormatInt(answer.Seq-int64(len(answer.Events)), 10)
		list = append(list, g)
	}
	for _, e := range answer.Events {
		list = append(list, told{id: prefix + strconv.FormatInt(e.Seq, 10), Event: e})
	}
	return list
}

// ofHub gives names to the events that a hub saw. The same event read from visibility gets the same name.
func ofHub(hub string, read *contract.ReadEventsResult, ask contract.ReadEventsInput) []told {
	prefix := hub + "." + read.Process + "."
	list := make([]told, 0, len(read.Events)+1)
	if read.Missing != 0 {
		missing, why := read.Missing, "older events of hub "+hub+" are no longer kept"
		switch {
		case missing < 0:
			missing, why = 0, "hub "+hub+" was restarted: what happened at its agents meanwhile is not known"
		case !ask.From.IsZero():
			missing = 0
		}
		g := gap(before(read.Events), "", why, missing)
		g.id = prefix + "gap." + strconv.FormatInt(read.Seq-int64(len(read.Events)), 10)
		list = append(list, g)
	}
	for _, e := range read.Events {
		id := prefix + strconv.FormatInt(e.Seq, 10)
		switch {
		case e.Type == api.EventTaskCompleted:
			id = taskEventID(e.TaskID, api.TaskCompleted)
		case e.Type == api.EventTaskRunning && e.Attempt == 1 && e.QueuedAt != nil:
			queued := cluster.Event{Type: api.EventTaskQueued, Time: *e.QueuedAt, EventData: api.EventData{
				Cluster: e.Cluster, Tenant: e.Tenant, TaskID: e.TaskID, TaskType: e.TaskType}}
			list = append(list, told{id: taskEventID(e.TaskID, api.TaskQueued), Event: queued})
		}
		list = append(list, told{id: id, Event: e})
	}
	return list
}

// before is the time of the first of the events: whatever is missing happened before it.
func before(events []cluster.Event) time.Time {
	if len(events) == 0 {
		return time.Now()
	}
	return events[0].Time
}

// taskEventID names the event that a task has reached a status that it reaches once.
func taskEventID(task string, status api.TaskStatus) string { return task + "." + string(status) }

// gap says that events may be missing.
func gap(now time.Time, clusterName, reason string, count int64) told {
	e := cluster.Event{Type: api.EventGap, Time: now.UTC(), EventData: api.EventData{Cluster: clusterName,
		Reason: reason,
		Count:  int(count)}}
	which := fnv.New32a()
	_, _ = which.Write([]byte(clusterName + "\x00" + reason))
	return told{id: "gap." + strconv.FormatInt(now.UnixNano(), 36) +
		"." + strconv.FormatUint(uint64(which.Sum32()), 36), Event: e}
}

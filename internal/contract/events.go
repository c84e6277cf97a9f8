package contract

import (
	"time"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/sdk/api"
)

var (
	// EventsQuery asks a Cluster workflow for its newest events.
	EventsQuery = QueryWith[EventsSince, ClusterEvents]{"events"}
	// AnnounceSignal gives a Cluster workflow events to keep: of drains, healing, scaling and the like.
	AnnounceSignal = Signal[Announcement]{"announce"}
	// ReadEventsActivity runs on a hub's own queue, as an activity without a workflow: it reads what the hub saw
	// happen.
	ReadEventsActivity = Activity[ReadEventsInput, ReadEventsResult]{"ReadEvents"}
)

// EventsSince says which events are wanted: those after a number, or, if From is set, those from a time on.
type EventsSince struct {
	After int64     `json:"after,omitempty"`
	From  time.Time `json:"from,omitzero"`
}

// ClusterEvents are events of a cluster, oldest first.
type ClusterEvents struct {
	// CreatedAt distinguishes a cluster from an earlier one of its name: their events are counted apart.
	CreatedAt time.Time `json:"created_at"`
	// Seq is the number of the newest event there is.
	Seq    int64           `json:"seq"`
	Events []cluster.Event `json:"events,omitempty"`
	// Missing is how many of those that were asked for are no longer kept; with From, 1 if there may be some.
	Missing int64 `json:"missing,omitempty"`
}

// Announcement brings events to the cluster that they are about. Times that are not set are when it arrives.
type Announcement struct {
	Events []cluster.Event `json:"events"`
}

// ReadEventsInput says which events of a hub.
type ReadEventsInput struct {
	// Process is the hub's process that After counts in; empty: whichever it is.
	Process string    `json:"process,omitempty"`
	After   int64     `json:"after,omitempty"`
	From    time.Time `json:"from,omitzero"`   // instead of After
	Hints   int64     `json:"hints,omitempty"` // as the reading before answered
	// Newest asks only where the hub stands.
	Newest bool `json:"newest,omitempty"`
	// Wait is how long to wait for an event.
	Wait api.Duration `json:"wait,omitempty"`
}

// ReadEventsResult has the events that there are.
type ReadEventsResult struct {
	Process string          `json:"process"`
	Seq     int64           `json:"seq"`
	Events  []cluster.Event `json:"events,omitempty"`
	// More: there are more events than fit into one answer, after Seq.
	More bool `json:"more,omitempty"`
	// Missing is how many of those that were asked for are no longer kept; with From, 1 if there may be some. -1:
	// another process plays the hub now, and what the one before saw is not known.
	Missing int64 `json:"missing,omitempty"`
	// Changed are the clusters, among those that Hints counts, that have or may have new events of their own.
	Changed []string `json:"changed,omitempty"`
	Hints   int64    `json:"hints,omitempty"`
}

// ReadEventsID is the id of one reading. nonce makes it unique.
func ReadEventsID(hub, nonce string) string { return "read-events/" + hub + "/" + nonce }

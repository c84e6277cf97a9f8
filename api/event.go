package api

import (
	"time"

	"mainstay.dev/mainstay/fleet"
)

// CloudEvent is an event as listeners get it: CloudEvents 1.0, structured JSON.
type CloudEvent struct {
	SpecVersion     string          `json:"specversion" enum:"1.0"`
	ID              string          `json:"id" doc:"The same event has the same id, however often and by whichever gateway it is told."`
	Source          string          `json:"source" doc:"The cluster that it is of, as a path of this API."`
	Type            fleet.EventType `json:"type" example:"dev.mainstay.agent.lost"`
	Subject         string          `json:"subject,omitempty" example:"agents/agent-1" doc:"What it is about: agents/…, tasks/…, failovers/…, drains/…, schedules/… or lanes/…"`
	Time            time.Time       `json:"time"`
	DataContentType string          `json:"datacontenttype" enum:"application/json"`
	Data            fleet.EventData `json:"data"`
}

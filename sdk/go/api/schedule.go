package api

import (
	"time"
)

// ScheduleTimes say when a schedule makes a task.
type ScheduleTimes struct {
	Cron          string     `json:"cron,omitempty" maxLength:"200" example:"0 3 * * *" doc:"Five fields: minute, hour, day of month, month, day of week; or @hourly, @daily, @weekly, @monthly, @yearly. Give this or interval. When both days are restricted, either may match; when a field of days begins with *, both must, as cron has it. 0 and 7 are Sunday."`
	TimeZone      string     `json:"time_zone,omitempty" maxLength:"64" example:"Europe/Berlin" doc:"IANA name of the time zone of cron. Default UTC. A time that a change of the clock leaves out comes right after the change, one that the clock shows twice comes once; when minute or hour begins with *, what the clock shows counts, so each real hour does."`
	Interval      Duration   `json:"interval,omitempty" least:"1s" most:"8784h" doc:"One task every so long, in whole seconds from 1s. Counted from start_at, the first; without it, or with offset, from 1970-01-01 UTC. Give this or cron."`
	Offset        Duration   `json:"offset,omitempty" least:"0s" most:"8784h" doc:"Shifts interval, counted from 1970-01-01 UTC; whole seconds, less than interval."`
	Overlap       Overlap    `json:"overlap,omitempty" enum:"skip,buffer_one,allow_all,cancel_other" doc:"When it is time and the last task has not ended: leave this one out (skip, the default), make it when the last one ends (buffer_one), make it all the same (allow_all), or cancel the last one first (cancel_other). A task in review or a dead letter does not hold up the next."`
	CatchupWindow Duration   `json:"catchup_window,omitempty" least:"10s" most:"8784h" doc:"How late a task may still be made that was due while Temporal was down. From 10s. Default ten intervals, but at least 1m and at most 1h. Of cron, an interval is an hour divided by the starts in an hour that it names."`
	Jitter        Duration   `json:"jitter,omitempty" least:"0s" most:"24h" doc:"Delays each task by a different time, up to this."`
	StartAt       *time.Time `json:"start_at,omitempty" doc:"No task before this time."`
	EndAt         *time.Time `json:"end_at,omitempty" doc:"No task after this time."`
}

// ScheduleRequest is a schedule as a client creates or replaces it.
type ScheduleRequest struct {
	Name string `json:"name,omitempty" maxLength:"110" pattern:"^([a-z0-9][a-z0-9._-]*:)?[a-z0-9][a-z0-9._-]*$" doc:"The schedule's name, up to 46 characters; the tenant of its task and a colon may stand before it. The ids of its tasks begin with it. Needed to create one; may be left out to replace one."`
	ScheduleTimes
	Task   TaskRequest `json:"task" doc:"The task to make each time, as in a submission, without id, idempotency_key and start_at."`
	Paused *bool       `json:"paused,omitempty" doc:"A paused schedule makes no task but by trigger. Left out of a replacement: as it is."`
	Note   *string     `json:"note,omitempty" maxLength:"512" doc:"A word for people. Left out of a replacement: as it is."`
}

// Schedule is a schedule as clients see it.
type Schedule struct {
	Name string `json:"name"`
	ScheduleTimes
	Task      TaskRequest   `json:"task"`
	Paused    bool          `json:"paused"`
	Ended     bool          `json:"ended,omitempty" doc:"It has no next time: it makes no task any more, but by trigger. A week later it is gone."`
	Note      string        `json:"note,omitempty"`
	NextTimes []time.Time   `json:"next_times" doc:"When the next tasks are due; none while it is paused."`
	Runs      []ScheduleRun `json:"recent_runs" doc:"The newest firings, newest first."`
	Counts    ScheduleCount `json:"counts"`
	CreatedAt *time.Time    `json:"created_at,omitempty"`
	UpdatedAt *time.Time    `json:"updated_at,omitempty"`
}

// ScheduleCount counts the firings of a schedule since it was made.
type ScheduleCount struct {
	Fired          int64 `json:"fired"`
	SkippedOverlap int64 `json:"skipped_overlap" doc:"Left out because the last task had not ended."`
	MissedWindow   int64 `json:"missed_catchup_window" doc:"Left out because they would have been too late."`
}

// ScheduleEntry is a schedule in a list: the facts that Temporal has without asking the schedule itself.
type ScheduleEntry struct {
	Name     string     `json:"name"`
	Cron     string     `json:"cron,omitempty"`
	TimeZone string     `json:"time_zone,omitempty"`
	Interval Duration   `json:"interval,omitempty"`
	Type     string     `json:"type" doc:"The type of its tasks."`
	Cluster  string     `json:"cluster"`
	Tenant   string     `json:"tenant,omitempty"`
	Paused   bool       `json:"paused"`
	Ended    bool       `json:"ended,omitempty" doc:"It has no next time."`
	Note     string     `json:"note,omitempty"`
	NextTime *time.Time `json:"next_time,omitempty"`
	LastTime *time.Time `json:"last_time,omitempty" doc:"When it last made a task."`
	LastTask string     `json:"last_task_id,omitempty"`
}

// TriggerRequest asks for a task now.
type TriggerRequest struct {
	Overlap Overlap `json:"overlap,omitempty" enum:"skip,buffer_one,allow_all,cancel_other" doc:"For this once, instead of the schedule's."`
}

// Triggered answers a trigger.
type Triggered struct {
	Name   string `json:"name"`
	TaskID string `json:"task_id" doc:"The task that is made now, or, with buffer_one or cancel_other, when the last one has ended."`
}

// ScheduleRun is one firing of a schedule.
type ScheduleRun struct {
	TaskID string `json:"task_id"`
	// Status of the task; two more words for a firing without one.
	Status      TaskStatus `json:"status" enum:"queued,running,retry_wait,review,dead_letter,completed,failed,cancelled,expired,starting,not_submitted,unknown" doc:"The task's. starting: the task is being made. not_submitted: it could not be made. unknown: Temporal did not tell in time, or its retention has ended."`
	Why         string     `json:"why,omitempty"`
	ScheduledAt time.Time  `json:"scheduled_at" doc:"The time it was for."`
	FiredAt     *time.Time `json:"fired_at,omitempty"`
	ClosedAt    *time.Time `json:"closed_at,omitempty"`
}

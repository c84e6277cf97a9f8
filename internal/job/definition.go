// Package job is the domain of jobs: what a job is, what a run of it has done, and what comes next. It holds types and
// pure decisions. Package flow makes a Plan of a Definition.
package job

import (
	"slices"
	"strings"
	"time"

	"mainstay.dev/mainstay/internal/schedule"
	"mainstay.dev/sdk/api"
)

// Limits of a definition and of what its runs keep.
const (
	MaxNameLength   = 30
	MaxSteps        = 200
	MaxTriggers     = 8
	MaxInline       = 100  // elements of a for_each that the run carries itself; more are an array
	MaxInlineAll    = 5000 // of all for_each of a run together
	MaxParallel     = 100  // deliveries of a run at a time
	MaxDefinition   = 256 << 10
	MaxOutputBytes  = 16 << 10 // of one step
	MaxOutputsBytes = 1 << 20  // of all steps of a run
	MaxInputsBytes  = 64 << 10 // of a dispatch
	MaxRunBytes     = 16 << 20 // payloads and results of a run in all
	// MaxBeginBytes bounds the payloads of the tasks that a step begins with. An evaluation is one event of the run's
	// history, and Temporal ends a workflow with an event of more than 2 MiB.
	MaxBeginBytes = 3 << 19
	// MaxRunOutputBytes bounds what a terminal sink completes the run with.
	MaxRunOutputBytes = 256 << 10

	MaxTools     = 64 // of a step
	MaxTurns     = 50
	DefaultTurns = 8
	MaxCalls     = 16 // of tools, in one turn

	DefaultParallel    = 50
	DefaultResultLimit = 64 << 10
)

// A job or a run whose required services are missing looks for them again after a quarter of the time that it has done
// so.
const requiredSoon, requiredLate, requiredShare = 2 * time.Second, time.Minute, 4

// LookAgain is how long a job or a run waits before it looks again for required services, after having done so for a
// time.
func LookAgain(r *api.Requires, after time.Duration) time.Duration {
	return min(max(after/requiredShare, requiredSoon), requiredLate)
}

// Lacking says that something waits for services that have no healthy instance.
func Lacking(missing []string) string {
	return "it waits until a healthy instance of each required service is there: none of " + strings.Join(missing, ", ")
}

// SchedulePlan is the times as package schedule checks and counts them.
func SchedulePlan(t *api.ScheduleTrigger) *schedule.SchedulePlan {
	return &schedule.SchedulePlan{Cron: t.Cron, TimeZone: t.TimeZone, Interval: t.Interval}
}

// NextTimes are when the schedules start runs next, n at most, in order. What two of them start at a time is two runs.
func NextTimes(d *api.JobDefinition, now time.Time, n int) (times []time.Time) {
	for _, s := range d.Schedules() {
		times = append(times, SchedulePlan(s).Next(now, n)...)
	}
	slices.SortFunc(times, time.Time.Compare)
	return times[:min(len(times), n)]
}

// MaxCorrections bounds the corrections of a step.
const MaxCorrections = 10

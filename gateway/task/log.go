package task

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

type taskLogInput struct {
	rest.ByID
	After   int64  `query:"after" minimum:"0" doc:"Only lines with a greater number. 0: all that are kept."`
	Attempt int    `query:"attempt" minimum:"1" doc:"Which attempt. Left out: the one that runs, or else the last."`
	Wait    string `query:"wait" maxLength:"32" example:"20s" doc:"Hold the answer until there is a line, the attempt has ended, or this time is over. At most 60s."`
}

func (h *Handlers) registerLog(r *rest.Routes) {
	rest.Serve(r, "read-task-log", "GET /tasks/{id}/log", "Read, or follow, what a task writes",
		"The newest 500 lines of an attempt, at most 64 KiB: while it runs they come from its agent, afterwards from "+
			"the task's history. Of an attempt that was lost with its agent it has what the agent had sent. Answers "+
			"501 not_supported for a running attempt when Temporal has no standalone activities.",
		func(ctx context.Context, in *taskLogInput) (log api.TaskLog, err error) {
			wait, err := rest.ParseWait(in.Wait)
			if err == nil {
				log, err = h.taskLog(ctx, in, wait)
			}
			log.Lines = append([]api.LogLine{}, log.Lines...)
			log.Next = in.After
			if n := len(log.Lines); n > 0 {
				log.Next = log.Lines[n-1].Number
			}
			return log, err
		}, rest.Held)
}

// taskLog reads from the hub that has the attempt. It looks again while there is none yet, or the attempt is between
// two hubs.
func (h *Handlers) taskLog(ctx context.Context, in *taskLogInput, wait time.Duration) (api.TaskLog, error) {
	id, err := rest.OwnTask(ctx, in.ID)
	if err != nil {
		return api.TaskLog{}, err
	}
	in.ID = id
	start := time.Now()
	var log api.TaskLog
	err = h.WaitUntil(ctx, wait, "wait for a task's log", func(ctx context.Context, _ bool) (bool, error) {
		found, err := h.describeTask(ctx, in.ID)
		if err != nil {
			return false, err
		}
		running := found.Running()
		log = api.TaskLog{Attempt: in.Attempt}
		switch {
		case running != nil && (in.Attempt == 0 || in.Attempt == running.Number):
			log.Attempt, log.AgentID = running.Number, running.AgentID
			read, err := h.readLog(ctx, in.ID, running, in.After, wait-time.Since(start))
			if err != nil || len(read.Lines) > 0 || !read.Gone {
				takeLines(&log, read)
				return true, err
			}
			log.Why = "the attempt has just begun, just ended, or is between two hubs"
		case running != nil && in.Attempt > running.Number:
			log.Why = fmt.Sprintf("attempt %d has not begun", in.Attempt)
		default:
			task, err := h.complete(ctx, found)
			if err == nil {
				err = httpapi.Reserve(ctx, min(found.HistoryBytes, store.ResultsTake))
			}
			if err != nil {
				return false, err
			}
			if attempt, ended := endedAttempt(&task, in.Attempt); ended {
				log, err = h.endOfLog(ctx, in, &task, attempt)
				return true, err
			}
			log.Why = task.Why
		}
		return false, nil
	})
	return log, err
}

// endedAttempt is the attempt that was asked for, 0 being the last of a task that is settled, if it has ended.
func endedAttempt(task *api.Task, number int) (api.Attempt, bool) {
	last := api.Attempt{}
	for _, attempt := range task.Attempts {
		if attempt.Number == number && attempt.Outcome != api.AttemptRunning {
			return attempt, true
		}
		if attempt.Outcome != api.AttemptReturned {
			last = attempt
		}
	}
	if number == 0 {
		return last, task.Status.Settled()
	}
	return api.Attempt{Number: number}, number < last.Number || task.Status.Final()
}

// endOfLog is the answer for an attempt that has ended: the part of its log that is in the task's history.
func (h *Handlers) endOfLog(
	ctx context.Context, in *taskLogInput, task *api.Task, attempt api.Attempt,
) (api.TaskLog, error) {
	log := api.TaskLog{Attempt: attempt.Number, AgentID: attempt.AgentID, Ended: true}
	if attempt.Number == 0 {
		log.Why = "no agent has had the task"
		return log, nil
	}
	lines, err := h.Store.Tasks().AttemptLog(ctx, task, attempt.Number)
	for i := range lines {
		if lines[i].Number > in.After {
			log.Lines = lines[i:]
			break
		}
	}
	switch {
	case len(lines) > 0:
	case attempt.Outcome == api.AttemptLost:
		log.Why = "the agent was lost before it had sent anything that the attempt wrote"
	default:
		log.Why = "the attempt wrote nothing"
	}
	return log, h.Answer(err, "read the history of a task", protocol.CodeUnknownTask)
}

func takeLines(l *api.TaskLog, read contract.ReadLogResult) {
	l.Lines = read.Lines
	if read.AgentID != "" {
		l.AgentID = read.AgentID
	}
	if read.Silent {
		l.Why = "the agent does not send its log; it may not know how to"
	}
}

// readLog asks the attempt's hub for lines. A hub that does not answer is answered as Gone: another may have the
// attempt by the next look.
func (h *Handlers) readLog(
	ctx context.Context, task string, attempt *api.Attempt, after int64, wait time.Duration,
) (contract.ReadLogResult, error) {
	if attempt.Hub == "" {
		return contract.ReadLogResult{Gone: true}, nil
	}
	wait = max(0, wait)
	read, answered, err := rest.Ask(ctx, h.Core, contract.ReadLogActivity, rest.HubQuestion{
		Hub:     attempt.Hub,
		ID:      contract.ReadLogID(task, uuid.NewString()),
		Summary: "read the log of task " + task,
		Wait:    wait,
	}, contract.ReadLogInput{TaskID: task, Attempt: attempt.Number, After: after, Wait: api.Duration(wait)})
	if !answered {
		return contract.ReadLogResult{Gone: true}, err
	}
	return read, err
}

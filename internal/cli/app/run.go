package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/sdk/api"
)

// shownOutput bounds how much of a step's output is shown.
const shownOutput = 60

// PrintRun prints a run's story: what it is, its steps in their order, and what a person may do.
func PrintRun(a *App, run *api.Run) error {
	started := moment(a, run.StartedAt)
	switch {
	case run.Origin.RetryOf != "":
		started += ", again after " + run.Origin.RetryOf + by(run.Origin.By)
	case run.Origin.Schedule:
		started += ", by the job's schedule"
	default:
		started += by(run.Origin.By)
	}
	ended := ""
	if run.EndedAt != nil {
		ended = moment(a, *run.EndedAt) + ", after " + Roughly(run.EndedAt.Sub(run.StartedAt))
	}
	version := ""
	if run.JobVersion > 0 {
		version = fmt.Sprintf(", version %d", run.JobVersion)
	}
	err := a.Facts([][2]any{
		{"Run", run.ID}, {"Job", run.Job + version}, {"Cluster", run.Cluster}, {"Status", run.Status},
		{"Why", run.Why}, {"Inputs", cut(string(run.Inputs), 200)}, {"Started", started}, {"Ended", ended},
		{"Output", cut(string(run.Output), 200)}, {"Workflow", run.WorkflowID},
	})
	if err != nil || len(run.Steps) == 0 {
		return err
	}
	header := []string{"STEP", "STATUS", "AGENT", "TRIES", "TOOK", "OUTPUT OR WHY"}
	err = PrintBelow(a, run.Steps, header, func(e *api.StepEntry) []any {
		return []any{e.Step, statusOf(e), agentOf(e), triesOf(e), a.tookOf(&e.StepWork), a.noteOf(e)}
	})
	if err == nil && len(run.Decisions) > 0 {
		header := []string{"DECIDED", "BY", "STEP", "WHEN", "WHY"}
		err = PrintBelow(a, run.Decisions, header, func(d *api.Decision) []any {
			return []any{d.Action, d.By, d.Step, d.At, d.Reason}
		})
	}
	if next := nextOf(run); err == nil && next != "" {
		err = a.Sayf("\n%s", next)
	}
	return err
}

func by(who string) string {
	if who == "" {
		return ""
	}
	return ", by " + who
}

func moment(a *App, t time.Time) string { return t.UTC().Format(time.RFC3339) + ", " + a.Ago(&t) }

// cut is the beginning of a text.
func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}

func statusOf(e *api.StepEntry) string {
	if c := e.Counts; c != nil {
		text := fmt.Sprintf("%s, %d of %d done", e.Status, c.Done, c.Total)
		if c.Failed > 0 {
			text += fmt.Sprintf(", %d failed", c.Failed)
		}
		return text
	}
	if e.Turns > 0 {
		return fmt.Sprintf("%s, after %s", e.Status, api.Count(e.Turns, "turn"))
	}
	if e.Status == api.StepFailed && e.StartedAt == nil && len(e.Attempts) == 0 {
		return "never began"
	}
	return string(e.Status)
}

// agentOf is who ran a step last; of elements, how many agents ran them.
func agentOf(e *api.StepEntry) string {
	agents := map[string]bool{}
	for i := range e.Elements {
		agents[lastAgent(e.Elements[i].Attempts)] = true
	}
	delete(agents, "")
	if len(agents) > 1 {
		return api.Count(len(agents), "agent")
	}
	for agent := range agents {
		return agent
	}
	return lastAgent(e.Attempts)
}

func lastAgent(attempts []api.Attempt) string {
	if n := len(attempts); n > 0 {
		return attempts[n-1].AgentID
	}
	return ""
}

func triesOf(e *api.StepEntry) string {
	n := begun(e.Attempts)
	for i := range e.Elements {
		n += begun(e.Elements[i].Attempts)
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

// begun counts the attempts that an agent had.
func begun(attempts []api.Attempt) (n int) {
	for i := range attempts {
		if a := &attempts[i]; a.AgentID != "" && a.Outcome != api.AttemptReturned {
			n++
		}
	}
	return n
}

// tookOf is how long a step took, or has taken so far.
func (a *App) tookOf(w *api.StepWork) string {
	switch {
	case w.StartedAt == nil:
		return ""
	case w.EndedAt == nil:
		return Roughly(a.Now().Sub(*w.StartedAt)) + " so far"
	}
	return Roughly(w.EndedAt.Sub(*w.StartedAt))
}

// noteOf is why a step stands as it does, or else its output.
func (a *App) noteOf(e *api.StepEntry) string {
	note := e.Why
	if e.NextAt != nil && !e.Status.Final() {
		note = strings.TrimSpace(note + " (goes on " + a.Ago(e.NextAt) + ")")
	}
	return cmp.Or(note, cut(string(e.Output), shownOutput))
}

// nextOf names the commands with which a person helps a run on.
func nextOf(run *api.Run) string {
	var b strings.Builder
	for i := range run.Steps {
		e := &run.Steps[i]
		if e.Status != api.StepBlocked {
			continue
		}
		actions := "retry|skip|complete|fail"
		if e.Approval {
			actions = "approve|reject"
		} else if !job.IsHeld(e) {
			fmt.Fprintf(&b, "Look at its task:  mainstay task get %s\n", blockedTask(e))
			continue
		}
		fmt.Fprintf(&b, "Decide about %s:  mainstay run step %s %s %s\n", e.Step, actions, run.ID, e.Step)
	}
	switch {
	case run.Status == api.RunPaused:
		fmt.Fprintf(&b, "Let it go on:  mainstay run resume %s\n", run.ID)
	case run.Status == api.RunFailed:
		fmt.Fprintf(&b, "Run again what has not succeeded:  mainstay run retry %s\n", run.ID)
	}
	return b.String()
}

// blockedTask is the task of a step that waits for a person: that of its first element that does, or its own.
func blockedTask(e *api.StepEntry) string {
	for i := range e.Elements {
		if w := &e.Elements[i]; w.Status == api.StepBlocked {
			return w.TaskID
		}
	}
	return e.TaskID
}

// FollowRun says what happens in a run, line by line, until it has ended or needs a person, and prints it then. That it
// did not complete is an error.
func (c *Client) FollowRun(ctx context.Context, id string) error {
	run, err := c.awaitRun(ctx, id)
	if err != nil {
		return GoesOn(err, "run "+id, "mainstay run watch "+id, "mainstay run cancel "+id)
	}
	err = c.Print(func() error { return errors.Join(c.app.Say(""), PrintRun(c.app, run)) })
	if run.Status != api.RunCompleted && run.Status != api.RunPartial {
		err = errors.Join(err, IncompleteError("run %s is %s", run.ID, run.Status))
	}
	return err
}

// awaitRun says what happens in a run until it has ended or needs a person.
func (c *Client) awaitRun(ctx context.Context, id string) (run *api.Run, err error) {
	told := map[string]string{}
	out, now := c.app.Storyteller(), c.app.Now
	err = Await(ctx, Forever, func() (bool, error) {
		if run, err = c.Runs.Get(ctx, id, 0); err != nil {
			return false, err
		}
		person := run.Status == api.RunPaused
		for i := range run.Steps {
			e := &run.Steps[i]
			person = person || e.Status == api.StepBlocked && run.Status == api.RunBlocked
			line := statusOf(e)
			if agent := agentOf(e); agent != "" && e.Status == api.StepRunning {
				line += " on " + agent
			}
			if e.Status != api.StepRunning && e.Why != "" {
				line += ": " + e.Why
			}
			if told[e.Step] != line && e.Status != api.StepPending && e.Status != api.StepReady {
				_, _ = fmt.Fprintf(out, "%s  %s  %s\n", Clock(now()), e.Step, OneLine(line))
			}
			told[e.Step] = line
		}
		if run.Status == api.RunBlocked && !person && told[""] != run.Why {
			_, _ = fmt.Fprintf(out, "%s  %s\n", Clock(now()), OneLine(run.Why))
			told[""] = run.Why
		}
		return person || run.Status.Final(), nil
	})
	return run, err
}

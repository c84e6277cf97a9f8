package task

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
)

// extent is how much of a long text is shown.
type extent int

const (
	wholeText extent = iota
	shortText        // the beginning, with a hint where the rest is
)

// Bounds of a short text.
const (
	shortLines = 40
	shortBytes = 4 << 10
)

// printTask prints all facts about a task.
func printTask(a *app.App, task *api.Task, show extent) error {
	return errors.Join(printStory(a, task, show), printHistory(a, task.History))
}

// printStory prints a task's story: what it is, what was submitted, its attempts one after the other, and its result.
func printStory(a *app.App, task *api.Task, show extent) error {
	if err := summary(a, task); err != nil {
		return err
	}
	if len(task.Payload) > 0 {
		if err := printLong(a.Stdout, task, "\nPayload", readable(task.Payload), show); err != nil {
			return err
		}
	}
	if len(task.Attempts) > 0 {
		fmt.Fprintln(a.Stdout)
		if err := attemptTable(a, task.Attempts); err != nil {
			return err
		}
	}
	if err := printLate(a, task, show); err != nil {
		return err
	}
	return printResult(a.Stdout, task, show)
}

// printLate shows what an agent brought after its task went to review.
func printLate(a *app.App, task *api.Task, show extent) error {
	late := task.LateResult
	if late == nil {
		return nil
	}
	fmt.Fprintf(a.Stdout, "\nAgent %s brought the end of attempt %d after that: %s, %s. To take it:\n"+
		"  mainstay task review %s --decision accept\n", late.AgentID, late.Attempt, late.Outcome, a.Ago(&late.At), task.ID)
	if late.Outcome != api.AttemptCompleted {
		return printLong(a.Stdout, task, "\nLate failure", late.Reason, show)
	}
	return printLong(a.Stdout, task, "\nLate result", readable(late.Result), show)
}

// printHistory prints what happened to a task, one thing a line.
func printHistory(a *app.App, history []api.TaskMoment) error {
	if len(history) == 0 {
		return nil
	}
	fmt.Fprintln(a.Stdout)
	t := app.NewTable(a.Stdout, "TIME", "HISTORY", "ATTEMPT", "AGENT", "BY", "WHY")
	for i := range history {
		m := &history[i]
		event, why := strings.ReplaceAll(m.Event, "_", " "), m.Reason
		if m.Times > 1 {
			event += fmt.Sprintf(", %d times", m.Times)
		}
		if m.Progress != nil {
			why = strings.TrimSpace(progressText(m.Progress) + " " + m.Progress.Message)
		}
		t.Row(clockTime(&m.At), event, positive(int64(m.Attempt)), m.AgentID, m.By, why)
	}
	return t.Flush()
}

// submittedRows are what the task was submitted with, where that is not the default.
func submittedRows(spec *api.TaskSpec) [][2]any {
	if spec == nil {
		return nil
	}
	retry, retries := spec.Retry, ""
	if spec.EffectiveRecovery() == nil {
		retries = fmt.Sprintf("up to %s, %s lost",
			api.Count(cmp.Or(retry.MaxAttempts, api.DefaultMaxAttempts), "attempt"),
			api.Count(cmp.Or(retry.MaxTransfers, api.DefaultMaxTransfers), "agent"))
	}
	rows := [][2]any{
		{"Retry safety", spec.Safety()},
		{"Needs", spec.RequiredCapabilities},
		{"Prefers", spec.PreferredCapabilities},
		{"Affinity", spec.Affinity},
		{"Provider", spec.Provider},
		{"Shard key", spec.ShardKey},
		{"Timeout", spec.AttemptTimeout().String() + " an attempt"},
		{"Stop grace", spec.StopGrace},
		{"Disconnect grace", spec.DisconnectGrace},
		{"Expires", expiry(spec)},
		{"Retries", retries},
		{"Not retried", retry.NonRetryable},
	}
	if spec.BeaconTimeout != 0 {
		rows = append(rows, [2]any{"Beacons", "at least one in " + spec.BeaconTimeout.Std().String()})
	}
	return rows
}

// recoveryRows are how a task's recovery stands, where it has one.
func recoveryRows(a *app.App, task *api.Task) [][2]any {
	r, s := task.Recovery, task.PolicyState
	if r == nil || s == nil {
		return nil
	}
	used := func(p *api.RecoveryPolicy, active int) string {
		limit := strconv.Itoa(*p.Attempts)
		if p.Unlimited {
			limit = "any number"
		}
		return fmt.Sprintf("%d of %s in %s", active, limit, p.Interval)
	}
	return [][2]any{
		{"Recovery", string(r.Mode) + ", " + strings.ReplaceAll(task.RecoveryStatus, "_", " ")},
		{"Restarts", used(r.Restart, s.ActiveRestarts)},
		{"Reschedules", used(r.Reschedule, s.ActiveReschedules)},
		{"Last failure", s.LastFailure},
		{"Next action", strings.TrimSpace(strings.ReplaceAll(string(s.NextAction), "_", " ") + " " + moment(a, s.NextAt))},
		{"Used up", s.Exhausted},
		{"Excluded", s.Excluded},
	}
}

func summary(a *app.App, task *api.Task) error {
	status := string(task.Status)
	if task.Cancelling != nil {
		status += ", being cancelled"
	}
	lines := [][2]any{{"Task", task.ID}, {"Type", task.Type}, {"Cluster", task.Cluster}, {"Status", status},
		{"Why", task.Why}, {"Doing", doing(task.Attempts)}}
	add := func(name string, value any) { lines = append(lines, [2]any{name, value}) }
	if n := len(task.Attempts); n > 0 && task.Status == api.TaskRunning {
		add("Last sign", moment(a, task.Attempts[n-1].AliveAt))
		add("Deadline", moment(a, task.Attempts[n-1].DeadlineAt))
	}
	lines = append(lines, recoveryRows(a, task)...)
	add("Pinned to", task.Agent)
	if task.Priority != 0 {
		add("Priority", strings.TrimSpace(fmt.Sprintf("%d %s", task.Priority, task.PriorityName)))
	}
	add("Tenant", task.Tenant)
	add("Labels", app.LabelText(task.Labels))
	lines = append(lines, submittedRows(task.Spec)...)
	add("Submitted", moment(a, task.CreatedAt))
	add("Not before", moment(a, task.StartAt))
	if task.StartAt == nil || task.NextAttemptAt == nil || !task.StartAt.Equal(*task.NextAttemptAt) {
		add("Next attempt", moment(a, task.NextAttemptAt))
	}
	add("Waits until", moment(a, task.ExpiresAt))
	if dead := task.DeadLetter; dead != nil {
		add("Dead letter", "since "+moment(a, &dead.Since))
		if task.Status == api.TaskDeadLetter {
			add("Kept until", moment(a, &dead.Until))
		} else {
			add("Because", dead.Cause)
		}
	}
	ended := moment(a, task.ClosedAt)
	if took := app.Took(task.CreatedAt, task.ClosedAt); took != "" {
		ended += ", after " + took
	}
	return a.Facts(append(lines, [][2]any{{"Ended", ended}, {"Rerun of", task.RerunOf}, {"Reruns", task.Reruns},
		{"Workflow", task.WorkflowID}, {"Trace", task.TraceID}}...))
}

// expiry says when a task expires.
func expiry(spec *api.TaskSpec) string {
	if !spec.ExpiresAt.IsZero() {
		return "if no agent has taken it by " + clockTime(&spec.ExpiresAt)
	}
	return "if no agent takes it within " + short(spec.Expiration())
}

// moment is a time as clocks show it and as people say it; empty for nil.
func moment(a *app.App, t *time.Time) string {
	if t == nil || t.IsZero() {
		return ""
	}
	return clockTime(t) + ", " + a.Ago(t)
}

// clockTime is a time to the second, in UTC; empty for nil.
func clockTime(t *time.Time) string {
	if t == nil {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// attemptTable is the attempts in the order in which they were delivered.
func attemptTable(a *app.App, attempts []api.Attempt) error {
	t := app.NewTable(a.Stdout, "ATTEMPT", "AGENT", "EPOCH", "STARTED", "TOOK", "OUTCOME", "PROGRESS", "REASON")
	for i := 0; i < len(attempts); i++ {
		at := &attempts[i]
		if last := sameReturns(attempts, i); last > i {
			t.Row(fmt.Sprintf("%d to %d", at.Number, attempts[last].Number), "", "", "", "", string(at.Outcome), "",
				at.Reason)
			i = last
			continue
		}
		outcome, reason := string(at.Outcome), at.Reason
		if at.Outcome == api.AttemptRunning {
			outcome = "running"
		}
		if at.ErrorType != "" {
			reason = at.ErrorType + ": " + reason
		}
		if at.Route != nil {
			reason = strings.TrimSuffix(at.Route.Provider+" "+at.Route.Model+": "+reason, ": ")
		}
		t.Row(strconv.Itoa(at.Number), at.AgentID, positive(at.Epoch), clockTime(at.StartedAt), took(a, at), outcome,
			progressText(at.Progress), reason)
	}
	return t.Flush()
}

// doing is the message of the running attempt.
func doing(attempts []api.Attempt) string {
	if len(attempts) == 0 {
		return ""
	}
	last := &attempts[len(attempts)-1]
	if last.Outcome != api.AttemptRunning || last.Progress == nil {
		return ""
	}
	return last.Progress.Message
}

func progressText(p *api.Progress) string {
	if p == nil {
		return ""
	}
	text := strings.TrimSpace(fmt.Sprintf("%d%% %s", p.Percent, p.Step))
	if p.EstimatedDuration > 0 {
		text += fmt.Sprintf(" (about %s in all)", p.EstimatedDuration)
	}
	return text
}

// sameReturns is the last attempt of a row from i on that came back for one reason without having reached an agent.
func sameReturns(attempts []api.Attempt, i int) int {
	first := &attempts[i]
	for first.Outcome == api.AttemptReturned && first.AgentID == "" && i+1 < len(attempts) {
		next := &attempts[i+1]
		if next.Outcome != first.Outcome || next.AgentID != "" || next.Reason != first.Reason {
			break
		}
		i++
	}
	return i
}

// positive is a number that counts from 1; empty when there is none.
func positive(n int64) string {
	if n <= 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

func took(a *app.App, at *api.Attempt) string {
	switch {
	case at.StartedAt == nil:
		return ""
	case at.EndedAt == nil:
		return app.Roughly(max(0, a.Now().Sub(*at.StartedAt)))
	}
	return app.Roughly(max(0, at.EndedAt.Sub(*at.StartedAt)))
}

// printResult shows what a command wrote as it wrote it, and any other result as JSON.
func printResult(w io.Writer, task *api.Task, show extent) error {
	if len(task.Result) == 0 || string(task.Result) == "null" {
		return nil
	}
	title := "\nResult"
	if task.ResultAttempt > 1 {
		title += " of attempt " + strconv.Itoa(task.ResultAttempt)
	}
	var result agent.ExecResult
	if task.Type != agent.ExecType || !strictly(task.Result, &result) { // a result that a review gave has any form
		return printLong(w, task, title, readable(task.Result), show)
	}
	fmt.Fprintf(w, "\nExit code: %d\n", result.ExitCode)
	for _, stream := range []struct{ name, text string }{{"Output", result.Stdout}, {"Errors", result.Stderr}} {
		if stream.text == "" {
			continue
		}
		if err := printLong(w, task, stream.name, stream.text, show); err != nil {
			return err
		}
	}
	return nil
}

// strictly reads JSON into a struct. It reports false for {} and for JSON with fields that the struct does not have.
func strictly(raw json.RawMessage, into any) bool {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into) == nil && string(raw) != "{}"
}

// printLong shows a text under a title, or its beginning and how to see the rest.
func printLong(w io.Writer, task *api.Task, title, text string, show extent) error {
	text = strings.TrimRight(app.Printable(text), "\n")
	if show == shortText {
		if begin := beginning(text); begin != text {
			text = begin + fmt.Sprintf("\n[… the first of %s; all of it: mainstay task get %s -o json]",
				app.ByteCount(int64(len(text))), task.ID)
		}
	}
	_, err := fmt.Fprintf(w, "%s:\n%s\n", title, app.Printable(text))
	return err
}

// readable is JSON in a readable form, without the escapes of <, > and & that are for web pages.
func readable(raw json.RawMessage) string {
	text := app.Indented(raw)
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' || i+1 == len(text) {
			b.WriteByte(text[i])
			continue
		}
		switch text[i:min(i+6, len(text))] {
		case `\u003c`:
			b.WriteByte('<')
			i += 5
		case `\u003e`:
			b.WriteByte('>')
			i += 5
		case `\u0026`:
			b.WriteByte('&')
			i += 5
		default: // another escape; a backslash may be its second half
			b.WriteString(text[i : i+2])
			i++
		}
	}
	return b.String()
}

// beginning is as much of a text as a short one may have.
func beginning(text string) string {
	end := 0
	for range shortLines {
		next := strings.IndexByte(text[end:], '\n')
		if next < 0 {
			end = len(text)
			break
		}
		end += next + 1
	}
	if end > shortBytes {
		end = shortBytes
	}
	if end == len(text) {
		return text
	}
	return strings.TrimRight(strings.ToValidUTF8(text[:end], ""), "\n")
}

// short is a duration without units that are 0 at its end, as 1h.
func short(d time.Duration) string {
	return strings.Replace(strings.Replace(d.String(), "m0s", "m", 1), "h0m", "h", 1)
}

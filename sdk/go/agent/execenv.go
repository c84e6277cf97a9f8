package agent

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"mainstay.dev/sdk/api"
)

// facts are variables that describe a command's work. A missing fact has no variable.
func (t *Task) facts(ctx context.Context) []string {
	var env []string
	set := func(name, value string) {
		if value != "" {
			env = append(env, "MAINSTAY_"+name+"="+value)
		}
	}
	run, step, element := stepOf(t.ID)
	if t.Element != nil {
		element = strconv.Itoa(*t.Element)
	}
	set("TASK_ID", t.ID)
	if t.Attempt > 0 {
		set("ATTEMPT", strconv.Itoa(t.Attempt))
	}
	set("IDEMPOTENCY_KEY", t.IdempotencyKey)
	set("CLUSTER", t.Cluster)
	set("RUN_ID", run)
	set("STEP", step)
	set("ELEMENT", element)
	end, bounded := ctx.Deadline()
	if t.attempt != nil {
		set("AGENT_ID", t.attempt.run.agent.options.ID)
		if at := t.attempt.deadline; at != nil && (!bounded || at.Before(end)) {
			end, bounded = *at, true
		}
	}
	if bounded {
		set("DEADLINE", end.UTC().Format(time.RFC3339))
	}
	if i := t.Instance; i != nil {
		set("JOB", i.Job)
		set("INSTANCE", i.Name)
	}
	return env
}

// stepOf is the run and the step that a task is of, and the place of an element, by the task's id: <run>~<step>,
// <run>~<step>.<n>, or <run>~<step>~.<n> of an array.
func stepOf(id string) (run, step, element string) {
	id, inArray, _ := strings.Cut(id, "~.")
	run, key, is := strings.Cut(id, "~")
	if !is || key == "" || key[0] < 'a' || key[0] > 'z' {
		return "", "", ""
	}
	step, element, _ = strings.Cut(key, ".")
	if element == "check" {
		element = ""
	}
	if inArray != "" {
		element = inArray
	}
	return run, step, element
}

// checkpointEvery is how often a command's checkpoint is looked at.
const checkpointEvery = time.Second

// keptCheckpoint is a file in which a command finds the checkpoint of the attempt before, and leaves its own; nil: it
// keeps none.
type keptCheckpoint struct {
	task *Task
	path string
	last string // what the file had when it was last looked at
}

// keepCheckpoint makes the folder of the file, and the file if there is a checkpoint. Without a folder a command does
// without.
func (t *Task) keepCheckpoint() *keptCheckpoint {
	if t.Element != nil || t.attempt == nil {
		return nil
	}
	dir, err := os.MkdirTemp("", "mainstay-checkpoint-")
	if err != nil {
		return nil
	}
	k := &keptCheckpoint{task: t, path: filepath.Join(dir, "checkpoint")}
	if len(t.Checkpoint) > 0 {
		k.last = checkpointText(t.Checkpoint)
		if os.WriteFile(k.path, []byte(k.last), 0o600) != nil {
			k.remove()
			return nil
		}
	}
	return k
}

// folder is where the file is; empty: there is none.
func (k *keptCheckpoint) folder() string {
	if k == nil {
		return ""
	}
	return filepath.Dir(k.path)
}

func (k *keptCheckpoint) remove() {
	if k != nil {
		_ = os.RemoveAll(k.folder())
	}
}

// watch saves what the command writes into the file, until it is stopped; then once more.
func (k *keptCheckpoint) watch() (stop func()) {
	if k == nil {
		return func() {}
	}
	tick, done, over := time.NewTicker(checkpointEvery), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				k.save()
			case <-done:
				k.save()
				return
			}
		}
	}()
	return func() {
		close(done)
		<-over
	}
}

// save saves the file's content if it has changed. It does not save a file that is too long, and logs that.
func (k *keptCheckpoint) save() {
	file, err := os.Open(k.path)
	if err != nil {
		return // it has written none
	}
	defer func() { _ = file.Close() }()
	content, err := io.ReadAll(io.LimitReader(file, api.MaxCheckpointBytes+1))
	if text := string(content); err == nil && text != k.last {
		k.last = text
		if err := k.task.SaveCheckpoint(checkpointValue(text)); err != nil {
			k.task.Log(err.Error())
		}
	}
}

// checkpointText is a checkpoint as a command reads it, and checkpointValue is the checkpoint for what it writes: an
// object or a list as it is, anything else as text.
func checkpointText(checkpoint json.RawMessage) string {
	var text string
	if json.Unmarshal(checkpoint, &text) == nil {
		return text
	}
	return string(checkpoint)
}

func checkpointValue(text string) any {
	if begin := strings.TrimLeft(text, " \t\r\n"); begin != "" && (begin[0] == '{' || begin[0] == '[') &&
		json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	return text
}

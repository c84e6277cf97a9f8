package job

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"
)

// StepMark stands between a run's id and a step's in the id of a task. Clients' ids cannot hold it.
const StepMark = "~"

// TaskID is the id of a step's task.
func TaskID(run, step string) string { return run + StepMark + step }

// ElementKey is the key in its run of the task of one element of a step, counted from 0.
// The key of a step's own task is the step.
func ElementKey(step string, element int) string { return step + "." + strconv.Itoa(element) }

// CheckKey is the key in its run of the task that checks a step's result.
func CheckKey(step string) string { return step + ".check" }

// OfCheck stands for an element where the task is the one that checks the step's result.
const OfCheck = -2

// CutTaskID is the inverse of TaskID, also of an element's key: element is -1 where the task is the step's own, and
// OfCheck where it checks the result.
func CutTaskID(id string) (run, step string, element int, ok bool) {
	run, key, ok := strings.Cut(id, StepMark)
	if !ok || run == "" || key == "" || key[0] < 'a' || key[0] > 'z' {
		return "", "", 0, false
	}
	step, number, has := strings.Cut(key, ".")
	switch {
	case !has:
		return run, step, -1, true
	case key == CheckKey(step):
		return run, step, OfCheck, true
	}
	element, err := strconv.Atoi(number)
	return run, step, element, err == nil && element >= 0
}

// KeyOf is the idempotency key of a task of a step, by the task's key in its run.
func (l *Ledger) KeyOf(step, task string) string {
	key := l.Entry(step).IdempotencyKey
	if task == step {
		return key
	}
	return IdempotencyKey(key, task)
}

// EndOf is when a step ends in any case; nil: it has no deadline, nor has its run.
func (l *Ledger) EndOf(step string) *time.Time {
	end := l.DeadlineAt
	if at := l.Entry(step).DeadlineAt; at != nil && (end == nil || at.Before(*end)) {
		end = at
	}
	return end
}

// IdempotencyKey is the same for every attempt of a step in a run.
func IdempotencyKey(run, step string) string {
	sum := sha256.Sum256([]byte(run + "\x00" + step))
	return hex.EncodeToString(sum[:16])
}

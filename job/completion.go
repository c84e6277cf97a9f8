package job

import (
	"bytes"
	"encoding/json"
	"strings"
)

// WholeOutput is what a run keeps of the result of a step that declares no output: all of it, if it is small.
func WholeOutput(result json.RawMessage) json.RawMessage {
	if len(result) > MaxOutputBytes {
		return nil
	}
	return result
}

// MayComplete reports whether a result may be one that Completion reads.
func MayComplete(result json.RawMessage) bool { return bytes.Contains(result, []byte("complete_")) }

// Completion reads a result that completes a step, or the whole run: {"complete_step": …} or {"complete_run": …}, also
// as the last line of a command's stdout. Any other result is the step's as it is.
func Completion(result json.RawMessage) (step json.RawMessage, completesRun bool, run json.RawMessage) {
	if s, r, ok := completion(result); ok {
		return s, r != nil, r
	}
	var command struct {
		Stdout string `json:"stdout"`
	}
	if json.Unmarshal(result, &command) == nil && command.Stdout != "" {
		lines := strings.Split(strings.TrimRight(command.Stdout, "\n"), "\n")
		if s, r, ok := completion([]byte(lines[len(lines)-1])); ok {
			return s, r != nil, r
		}
	}
	return result, false, nil
}

func completion(text []byte) (step, run json.RawMessage, ok bool) {
	if !MayComplete(text) {
		return nil, nil, false
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(text, &object) != nil || len(object) != 1 {
		return nil, nil, false
	}
	if run, ok = object["complete_run"]; ok {
		return run, run, true
	}
	step, ok = object["complete_step"]
	return step, nil, ok
}

package job

import (
	"bytes"
	"encoding/json"
	"errors"
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

var errLegacy = errors.New(
	"legacy_name: complete_job is the old name: return complete_step, or, of a step with terminal_sink: true, complete_run")

// Completion reads a result that completes a step, or the whole run: {"complete_step": …} or {"complete_run": …}, also
// as the last line of a command's stdout. run is nil where it does not complete the run. Any other result is the step's
// as it is; one with an old name is an error.
func Completion(result json.RawMessage) (step, run json.RawMessage, err error) {
	if !MayComplete(result) {
		return result, nil, nil
	}
	texts := [][]byte{result}
	var command struct {
		Stdout string `json:"stdout"`
	}
	if json.Unmarshal(result, &command) == nil {
		stdout := strings.TrimRight(command.Stdout, "\n")
		texts = append(texts, []byte(stdout[strings.LastIndexByte(stdout, '\n')+1:]))
	}
	for _, text := range texts {
		var object map[string]json.RawMessage
		if json.Unmarshal(text, &object) != nil || len(object) != 1 {
			continue
		}
		for name, value := range object {
			switch name {
			case "complete_step":
				return value, nil, nil
			case "complete_run":
				return value, value, nil
			case "complete_job", "complete_job?":
				return nil, nil, errLegacy
			}
		}
	}
	return result, nil, nil
}

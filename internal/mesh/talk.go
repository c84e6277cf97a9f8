package mesh

import (
	"encoding/json"
	"slices"
	"strings"

	"mainstay.dev/sdk/api"
)

// MaxTalkBytes bounds what the turns of a model and its tools add to their conversation. Each turn's task has it whole.
const MaxTalkBytes = 256 << 10

// ReadAnswer reads the result of a task that called a model.
//
//workflowcheck:ignore
func ReadAnswer(result json.RawMessage) (answer api.ModelAnswer) {
	_ = json.Unmarshal(result, &answer) // a result that is no answer has no text, and calls nothing
	return answer
}

// MessageOf is the answer as a message.
func MessageOf(a api.ModelAnswer) api.ModelMessage {
	return api.ModelMessage{Role: "assistant", Content: a.Text, ToolCalls: a.ToolCalls}
}

// NotAccepted is the message about an answer with which something is wrong.
func NotAccepted(errors []string) api.ModelMessage {
	return api.ModelMessage{Role: "user", Content: "Your answer was not accepted:\n- " + strings.Join(errors, "\n- ") +
		"\nAnswer again, with all of this corrected."}
}

// Talk is what the turns of a model and its tools have added to their conversation.
type Talk []api.ModelMessage

// Bytes is the size of the talk as JSON.
//
//workflowcheck:ignore
func (t Talk) Bytes() int {
	if len(t) == 0 {
		return 0
	}
	text, err := json.Marshal(t)
	if err != nil { // arguments that are no JSON
		return MaxTalkBytes + 1
	}
	return len(text)
}

// Add is the talk with more messages. ok is false, and it is as before, if it would be too long.
func (t Talk) Add(more ...api.ModelMessage) (longer Talk, ok bool) {
	if longer = append(slices.Clip(t), more...); longer.Bytes() > MaxTalkBytes {
		return t, false
	}
	return longer, true
}

// tooLong stands for the result of a tool for which the conversation has no room.
const tooLong = "the result does not fit into the conversation any more"

// Calls are the calls at the end of the talk that have no answers yet.
func (t Talk) Calls() []api.ToolCall {
	if len(t) == 0 {
		return nil
	}
	return t[len(t)-1].ToolCalls
}

// Told is the talk with the answers to its calls: results by their numbers, or why a call brought none. full: a result
// did not fit, so it is left out, and the model gets a note about that.
func (t Talk) Told(results []json.RawMessage, failures []string) (longer Talk, full bool) {
	longer = t
	for i, call := range t.Calls() {
		m := api.ModelMessage{Role: "tool", ToolCallID: call.ID, Content: failures[i], Failed: failures[i] != ""}
		if !m.Failed {
			m.Content = toolText(results[i])
		}
		more, ok := longer.Add(m)
		if longer = more; !ok {
			m.Content, m.Failed, full = tooLong, true, true
			longer = append(longer, m)
		}
	}
	return longer, full
}

// toolText is what the model learns of a tool's result: its texts, or, if it has none, all of it.
//
//workflowcheck:ignore
func toolText(result json.RawMessage) string {
	var r struct {
		Content []struct{ Type, Text string } `json:"content"`
	}
	var texts []string
	if json.Unmarshal(result, &r) == nil {
		for _, part := range r.Content {
			if part.Type == "text" {
				texts = append(texts, part.Text)
			}
		}
	}
	if len(texts) == 0 {
		return string(result)
	}
	return strings.Join(texts, "\n")
}

// Into is the payload of a task that calls a model, with the talk behind its messages, and with tools that the model
// may call. A payload without messages stays as it is: the agent reports the error.
//
//workflowcheck:ignore
func (t Talk) Into(payload json.RawMessage, tools any) json.RawMessage {
	var object map[string]json.RawMessage
	var messages []json.RawMessage
	if json.Unmarshal(payload, &object) != nil || json.Unmarshal(object["messages"], &messages) != nil {
		return payload
	}
	for _, m := range t {
		text, err := json.Marshal(m)
		if err != nil {
			return payload
		}
		messages = append(messages, text)
	}
	var err error
	if object["messages"], err = json.Marshal(messages); err != nil {
		return payload
	}
	if object["tools"], err = json.Marshal(tools); err != nil {
		return payload
	}
	text, err := json.Marshal(object)
	if err != nil {
		return payload
	}
	return text
}

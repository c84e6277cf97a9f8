package api

import (
	"encoding/json"
)

// ModelMessage is one message of a conversation.
type ModelMessage struct {
	Role      string     `json:"role"` // system, user, assistant or tool
	Content   string     `json:"content"`
	ToolCalls []ToolCall `json:"tool_calls,omitempty"` // of the assistant
	// ToolCallID is the call that a tool's message answers; Failed says that the call brought no result.
	ToolCallID string `json:"tool_call_id,omitempty"`
	Failed     bool   `json:"failed,omitempty"`
}

// ToolCall is a call of a tool that a model asks for. Its arguments are what the model wrote: an object, or anything.
type ToolCall struct {
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
}

// ModelAnswer is what a model answered: the part of the result of its task that the conversation has.
type ModelAnswer struct {
	Text      string     `json:"text"`
	ToolCalls []ToolCall `json:"tool_calls,omitempty"`
}

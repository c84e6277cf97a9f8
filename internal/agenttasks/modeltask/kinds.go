package modeltask

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"strings"

	"mainstay.dev/mainstay/internal/mesh"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/payload"
)

// kinds are the forms of APIs.
var kinds = map[string]struct {
	url, path string // where the kind's own provider is; of a call below that
	header    func(h http.Header, key string)
	body      func(r *Request) map[string]any
	read      func(data []byte) (Result, error)
}{
	"openai": {"https://api.openai.com/v1", "/chat/completions", func(h http.Header, key string) {
		if key != "" {
			h.Set("Authorization", "Bearer "+key)
		}
	}, openAIBody, readOpenAI},
	"anthropic": {"https://api.anthropic.com", "/v1/messages", func(h http.Header, key string) {
		h.Set("Anthropic-Version", "2023-06-01")
		h.Set("X-Api-Key", key)
	}, anthropicBody, readAnthropic},
}

func openAIBody(r *Request) map[string]any {
	messages, tools := make([]any, len(r.Messages)), make([]any, len(r.Tools))
	for i, m := range r.Messages {
		messages[i] = openAIMessage(m)
	}
	for i, t := range r.Tools {
		tools[i] = map[string]any{"type": "function", "function": map[string]any{"name": t.Name,
			"description": t.Description, "parameters": schemaOf(t)}}
	}
	return commonBody(r, messages, tools)
}

// openAIMessage is a message in that form: arguments are text there.
func openAIMessage(m Message) map[string]any {
	message := map[string]any{"role": m.Role, "content": m.Content}
	if m.ToolCallID != "" {
		message["tool_call_id"] = m.ToolCallID
	}
	if m.Failed {
		message["content"] = "error: " + m.Content
	}
	var calls []any
	for _, c := range m.ToolCalls {
		arguments := string(c.Arguments)
		_ = json.Unmarshal(c.Arguments, &arguments) // a text stands for what was no JSON
		calls = append(calls, map[string]any{"id": c.ID, "type": "function",
			"function": map[string]any{"name": c.Name, "arguments": cmp.Or(arguments, "{}")}})
	}
	if len(calls) > 0 {
		message["tool_calls"] = calls
	}
	return message
}

// schemaOf is the schema of the tool's arguments; any object, if it has none.
func schemaOf(t payload.Tool) json.RawMessage {
	if len(t.Arguments) == 0 {
		return json.RawMessage(`{"type":"object"}`)
	}
	return t.Arguments
}

// commonBody is what the forms of requests have in common.
func commonBody(r *Request, messages, tools []any) map[string]any {
	body := map[string]any{"model": r.Route.Model, "messages": messages}
	if len(tools) > 0 {
		body["tools"] = tools
	}
	if r.MaxTokens > 0 {
		body["max_tokens"] = r.MaxTokens
	}
	if r.Temperature != nil {
		body["temperature"] = *r.Temperature
	}
	return body
}

// anthropicTokens is max_tokens where the task has none: that API wants one.
const anthropicTokens = 4096

// anthropicBody has the system's messages apart.
func anthropicBody(r *Request) map[string]any {
	var system []string
	messages, tools := []any{}, make([]any, len(r.Tools))
	var said []any // by tools, one after another: they are one message there
	for i, m := range r.Messages {
		switch m.Role {
		case "system":
			system = append(system, m.Content)
		case "tool":
			said = append(said, map[string]any{"type": "tool_result", "tool_use_id": m.ToolCallID, "content": m.Content,
				"is_error": m.Failed})
			if i+1 == len(r.Messages) || r.Messages[i+1].Role != "tool" {
				messages, said = append(messages, map[string]any{"role": "user", "content": said}), nil
			}
		default:
			messages = append(messages, anthropicMessage(m))
		}
	}
	for i, t := range r.Tools {
		tools[i] = map[string]any{"name": t.Name, "description": t.Description, "input_schema": schemaOf(t)}
	}
	body := commonBody(r, messages, tools)
	body["max_tokens"] = cmp.Or(r.MaxTokens, anthropicTokens)
	if len(system) > 0 {
		body["system"] = strings.Join(system, "\n\n")
	}
	return body
}

// anthropicMessage is a message in that form: calls are parts of its content.
func anthropicMessage(m Message) map[string]any {
	if len(m.ToolCalls) == 0 {
		return map[string]any{"role": m.Role, "content": m.Content}
	}
	var parts []any
	if m.Content != "" {
		parts = append(parts, map[string]any{"type": "text", "text": m.Content})
	}
	for _, c := range m.ToolCalls {
		input := c.Arguments
		if !bytes.HasPrefix(input, []byte("{")) {
			input = json.RawMessage("{}") // the answer to the call says that it was wrong
		}
		parts = append(parts, map[string]any{"type": "tool_use", "id": c.ID, "name": c.Name, "input": input})
	}
	return map[string]any{"role": m.Role, "content": parts}
}

func readOpenAI(data []byte) (result Result, err error) {
	var a struct {
		ID, Model string
		Choices   []struct {
			Message struct {
				Content, Refusal string
				ToolCalls        []struct {
					ID       string
					Function struct {
						Name      string
						Arguments json.RawMessage
					}
				} `json:"tool_calls"`
			}
			FinishReason string `json:"finish_reason"`
		}
		Usage struct {
			Prompt     int `json:"prompt_tokens"`
			Completion int `json:"completion_tokens"`
			Details    struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
	if json.Unmarshal(data, &a) != nil || len(a.Choices) == 0 {
		return result, failed(mesh.ErrorUnavailable, "the provider's answer cannot be read")
	}
	choice := a.Choices[0]
	if choice.FinishReason == "content_filter" || choice.Message.Refusal != "" {
		return result, failed(mesh.ErrorRefused, "the model refuses to answer")
	}
	result.Text, result.FinishReason = choice.Message.Content, choice.FinishReason
	for _, c := range choice.Message.ToolCalls {
		arguments, text := c.Function.Arguments, ""
		if json.Unmarshal(arguments, &text) == nil && json.Valid([]byte(cmp.Or(text, "{}"))) {
			arguments = json.RawMessage(cmp.Or(text, "{}")) // else it stays the text that it is
		}
		call := api.ToolCall{ID: c.ID, Name: c.Function.Name, Arguments: arguments}
		result.ToolCalls = append(result.ToolCalls, call)
	}
	result.Invocation = Invocation{ID: a.ID, AnsweredBy: a.Model, Usage: mesh.Usage{InputTokens: a.Usage.Prompt,
		OutputTokens: a.Usage.Completion, CachedTokens: a.Usage.Details.Cached}}
	return result, nil
}

func readAnthropic(data []byte) (result Result, err error) {
	var a struct {
		ID, Model string
		Content   []struct {
			Type, Text, ID, Name string
			Input                json.RawMessage
		}
		StopReason string `json:"stop_reason"`
		Usage      struct {
			Input  int `json:"input_tokens"`
			Output int `json:"output_tokens"`
			Cached int `json:"cache_read_input_tokens"`
		}
	}
	if json.Unmarshal(data, &a) != nil || a.StopReason == "" {
		return result, failed(mesh.ErrorUnavailable, "the provider's answer cannot be read")
	}
	if a.StopReason == "refusal" {
		return result, failed(mesh.ErrorRefused, "the model refuses to answer")
	}
	for _, part := range a.Content {
		switch part.Type {
		case "text":
			result.Text += part.Text
		case "tool_use":
			call := api.ToolCall{ID: part.ID, Name: part.Name, Arguments: part.Input}
			result.ToolCalls = append(result.ToolCalls, call)
		}
	}
	result.FinishReason = a.StopReason
	result.Invocation = Invocation{ID: a.ID, AnsweredBy: a.Model, Usage: mesh.Usage{InputTokens: a.Usage.Input,
		OutputTokens: a.Usage.Output, CachedTokens: a.Usage.Cached}}
	return result, nil
}

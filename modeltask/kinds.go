package modeltask

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strings"

	"mainstay.dev/mainstay/mesh"
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
	body := map[string]any{"model": r.Route.Model, "messages": r.Messages}
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
	messages := []Message{}
	for _, m := range r.Messages {
		if m.Role == "system" {
			system = append(system, m.Content)
		} else {
			messages = append(messages, m)
		}
	}
	body := openAIBody(r)
	body["messages"], body["max_tokens"] = messages, cmp.Or(r.MaxTokens, anthropicTokens)
	if len(system) > 0 {
		body["system"] = strings.Join(system, "\n\n")
	}
	return body
}

func readOpenAI(data []byte) (result Result, err error) {
	var a struct {
		ID, Model string
		Choices   []struct {
			Message      struct{ Content, Refusal string }
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
	return Result{Text: choice.Message.Content, FinishReason: choice.FinishReason,
		Invocation: Invocation{ID: a.ID, AnsweredBy: a.Model, Usage: mesh.Usage{InputTokens: a.Usage.Prompt,
			OutputTokens: a.Usage.Completion, CachedTokens: a.Usage.Details.Cached}}}, nil
}

func readAnthropic(data []byte) (result Result, err error) {
	var a struct {
		ID, Model  string
		Content    []struct{ Type, Text string }
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
		if part.Type == "text" {
			result.Text += part.Text
		}
	}
	result.FinishReason = a.StopReason
	result.Invocation = Invocation{ID: a.ID, AnsweredBy: a.Model, Usage: mesh.Usage{InputTokens: a.Usage.Input,
		OutputTokens: a.Usage.Output, CachedTokens: a.Usage.Cached}}
	return result, nil
}

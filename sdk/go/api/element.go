package api

import (
	"encoding/json"
)

// Element is one element of an array in a bundle.
type Element struct {
	Number  int             `json:"n" minimum:"0" doc:"Its place in the array, from 0."`
	ID      string          `json:"id" doc:"The element's task id. It stays the same over attempts."`
	Attempt int             `json:"attempt" minimum:"1"`
	Payload json.RawMessage `json:"payload,omitempty"`
}

// ElementResult is how an element of a bundle ended on its agent. Elements that a bundle's result leaves out did not
// end there: they are delivered again.
type ElementResult struct {
	Number       int             `json:"n" minimum:"0"`
	Outcome      AttemptOutcome  `json:"outcome" enum:"completed,failed,timed_out"`
	Output       json.RawMessage `json:"output,omitempty" doc:"The result, any JSON up to 512 KiB."`
	Error        string          `json:"error,omitempty" maxLength:"8192"`
	ErrorType    string          `json:"error_type,omitempty" maxLength:"128"`
	NonRetryable bool            `json:"non_retryable,omitempty" doc:"The failure is final: do not try again."`
	Stuck        bool            `json:"stuck,omitempty" doc:"With timed_out: the handler may still be at work."`
	Milliseconds int64           `json:"ms,omitempty" minimum:"0" doc:"How long the handler ran."`
}

// Bounds of arrays.
const (
	// MaxElements bounds the elements of an array.
	MaxElements = 100_000
	// MaxElementOutput bounds the result of an element, as JSON text.
	MaxElementOutput = 512 << 10
	// MaxBundle bounds the elements of a bundle.
	MaxBundle = 100
)

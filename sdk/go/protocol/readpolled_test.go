package protocol

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/api"
)

func TestAnAnswerIsReadPieceByPiece(t *testing.T) {
	t.Parallel()
	deep := func(levels int) string { return strings.Repeat("[", levels) + strings.Repeat("]", levels) }
	good := `{"task_id":"good","attempt":1,"type":"echo","payload":` + deep(api.MaxJSONDepth-1) + `,"token":"x"}`
	for name, c := range map[string]struct {
		answer     string
		good       []string
		unreadable []RunningAttempt
		commands   int
		ignored    int
		leaseHeld  bool
		err        bool
	}{
		"nothing":         {answer: `{}`},
		"no list":         {answer: `{"assignments":null,"lease_held":true}`, leaseHeld: true},
		"empty lists":     {answer: `{"commands":[], "assignments":[ ]}`},
		"one":             {answer: `{"assignments":[` + good + `]}`, good: []string{"good"}},
		"nested too deep": {answer: `{"assignments":[` + good + `,{"task_id":"bad","attempt":3,"payload":{"a":` + deep(api.MaxJSONDepth) + `},"token":"x"},` + good + `],"commands":[{"type":"stop"}],"lease_held":true}`, good: []string{"good", "good"}, unreadable: []RunningAttempt{{TaskID: "bad", Attempt: 3, Unreadable: api.ErrJSONDepth.Error()}}, commands: 1, leaseHeld: true},
		"deeper than a parser": {answer: `{"assignments":[{"payload":` + deep(
			10_001) + `,"attempt":1,"task_id":"bad"},` + good + `]}`, good: []string{"good"}, unreadable: []RunningAttempt{{TaskID: "bad", Attempt: 1, Unreadable: api.ErrJSONDepth.Error()}}},
		"another form": {answer: `{"assignments":[{"task_id":"bad","attempt":1,"timeout":"?"},` + good + `]}`,
			good:       []string{"good"},
			unreadable: []RunningAttempt{{TaskID: "bad", Attempt: 1, Unreadable: errElement.Error()}}},
		"nobody knows whose": {answer: `{"assignments":[{"task_id":7},` + good + `]}`, good: []string{"good"},
			ignored: 1},
		"a command": {answer: `{"commands":[{"type":"sync","entries":[{"value":` + deep(
			10_001) + `}]},{"type":"stop"}],"assignments":[` + good + `]}`, good: []string{"good"}, commands: 1, ignored: 1},
		"brackets in a string": {answer: `{"assignments":[{"task_id":"good","attempt":1,"payload":"}]\"[{"}]}`,
			good: []string{"good"}},
		"not an answer":         {answer: `not JSON`, err: true},
		"cut off":               {answer: `{"assignments":[` + good, err: true},
		"lists in another list": {answer: `{"other":{"assignments":[{"task_id":"x"}]}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var p ReadPolled
			err := p.Read([]byte(c.answer))
			require.Equal(t, c.err, err != nil, "%v", err)
			var got []string
			for _, a := range p.Assignments {
				got = append(got, a.TaskID)
			}
			require.Equal(t, c.good, got)
			require.Equal(t, c.unreadable, p.Unreadable)
			require.Len(t, p.Commands, c.commands)
			require.Equal(t, c.ignored, p.Ignored)
			require.Equal(t, c.leaseHeld, p.LeaseHeld)
		})
	}
}

// FuzzReadPolled reads what a hub may answer. What encoding/json reads as a whole is read the same by pieces, and what
// is handed back has a task.
func FuzzReadPolled(f *testing.F) {
	for _, seed := range []string{`{}`, `{"assignments":[{"task_id":"a","attempt":1,"payload":[[{}]]}],"lease_held":true}`,
		`{"commands":[{"type":"stop"},7],"assignments":[{"task_id":"a","timeout":"?"}]}`, `{"assignments":{"a":[]}}`,
		`{"assignments":[[{}],{"task_id":"\u0061"}]}`, `{"assignments`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var whole Polled
		wholeErr := json.Unmarshal([]byte(text), &whole)
		var read ReadPolled
		err := read.Read([]byte(text))
		for _, u := range read.Unreadable {
			if u.TaskID == "" || u.Unreadable == "" {
				t.Fatalf("handed back: %+v", u)
			}
		}
		if wholeErr == nil && err != nil {
			t.Fatal(err)
		}
	})
}

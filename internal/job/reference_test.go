package job

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/api"
)

func TestReference(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"${inputs.bucket}": true, "${inputs.a.b_2}": true, "${steps.list.output}": true, "${steps.list.output.keys}": true,
		"bucket": false, "${inputs}": false, "${inputs.a + 1}": false, "${inputs.a[0]}": false, "${inputs.a} ": false,
		"$${inputs.a}": false, "${inputs.a}${inputs.b}": false, "${steps.list}": false, "${steps.list.status}": false,
		"${steps.my-list.output}": false, "${run.id}": false, "${inputs.}": false, "${inputs.2}": false, "${item}": false,
	} {
		require.Equal(t, want, IsReference(text), text)
	}
}

func TestFill(t *testing.T) {
	t.Parallel()
	inputs := json.RawMessage(`{"n": 9007199254740993, "half": 1.50, "deep": {"list": [1, "<"]}, "none": null}`)
	steps := []api.StepEntry{{Step: "a", StepWork: api.StepWork{Output: json.RawMessage(`{"x": "${inputs.n}"}`)}}, {Step: "b"}}
	for payload, want := range map[string]string{
		`"${inputs.n}"`:                      `9007199254740993`,
		`{"h": ["${inputs.half}", 7, true]}`: `{"h":[1.50,7,true]}`,
		`"${inputs.deep.list}"`:              `[1,"<"]`,
		`"${inputs.none}"`:                   `null`,
		`"${steps.a.output}"`:                `{"x":"${inputs.n}"}`,
		`"${steps.b.output}"`:                `null`,
		`"${steps.b.output.x}"`:              ``,
		`"${steps.c.output}"`:                ``,
		`"${inputs.deep.list.x}"`:            ``,
		`"${inputs.none.x}"`:                 ``,
		`"${inputs.m}"`:                      ``,
	} {
		spec := &api.TaskSpec{Type: "echo", Cluster: "c", Payload: json.RawMessage(payload)}
		filled, ok := Fill(spec, inputs, steps, new(1000))
		require.Equal(t, want != "", ok, payload)
		if ok {
			require.JSONEq(t, want, string(filled.Payload), payload)
		}
		require.JSONEq(t, payload, string(spec.Payload), "the plan's task stays")
	}
	_, ok := Fill(&api.TaskSpec{Type: "echo", Cluster: "c", Labels: map[string]string{"n": "${inputs.n}"}}, inputs, steps,
		new(1000))
	require.False(t, ok, "a label is text")
	budget := len(inputs) + len("1.50")
	spec := &api.TaskSpec{Type: "echo", Cluster: "c", Payload: json.RawMessage(`"${inputs.half}"`)}
	_, ok = Fill(spec, inputs, steps, &budget)
	require.True(t, ok)
	_, ok = Fill(spec, inputs, steps, &budget)
	require.False(t, ok, "what is read and filled in has used the budget up")
}

//nolint:paralleltest // it measures what is allocated
func TestReferencesToOneLargeValueAreNotWrittenOutThousandsOfTimes(t *testing.T) {
	inputs := json.RawMessage(`{"big": "` + strings.Repeat("x", 60<<10) + `"}`)
	spec := &api.TaskSpec{Type: "echo", Cluster: "c",
		Payload: json.RawMessage("[" + strings.Repeat(`"${inputs.big}",`, 5000) + "1]")}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, ok := Fill(spec, inputs, nil, new(16<<20))
	runtime.ReadMemStats(&after)
	require.False(t, ok)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(100<<20))
}

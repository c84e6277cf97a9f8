package array_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"mainstay.dev/mainstay/internal/array"
	"mainstay.dev/sdk/api"
)

// mostInTrouble is how many elements may wait for another attempt: all that are under way, and the 499 that waited when
// the last of them began.
const mostInTrouble = 499 + array.MaxParallel*api.MaxBundle

// failTogether is an array of so many elements. When so many of them are under way as may be, all others begin to fail,
// and are to be tried again an hour later.
func failTogether(count int, why string) (*array.Definition, *array.State) {
	d := define(func(d *array.Definition) {
		d.Count, d.Parallel = count, array.MaxParallel
		d.Spec.Retry = api.RetryPolicy{MaxAttempts: 100, InitialInterval: api.Duration(time.Hour),
			MaxInterval: api.Duration(24 * time.Hour)}
	})
	s := array.New(d.Total())
	var flying []array.Bundle
	for now := start; ; now = now.Add(time.Millisecond) {
		for b, ok := s.Begin(d, now); ok; b, ok = s.Begin(d, now) {
			flying = append(flying, b)
		}
		if len(flying) == 0 {
			return d, s
		}
		end := completed(flying[0].Elements, 1)
		for i := range end.Results {
			if end.Results[i].Number >= count*8/100 {
				end.Results[i].Outcome, end.Results[i].Error = api.AttemptFailed, why
			}
		}
		s.Take(d, "a", flying[0].Number, end, now)
		flying = flying[1:]
	}
}

// waiting are the elements that wait for another attempt.
func waiting(s *array.State) []api.ElementEntry {
	found, _ := s.Elements("a", api.ElementRetryWait, 0, api.MaxElements)
	return found
}

func TestTheStateIsSmallHoweverManyElementsFailTogether(t *testing.T) {
	t.Parallel()
	for name, why := range map[string]string{"short": "no disk", "long": strings.Repeat("x", 8000),
		"escaped": strings.Repeat("<", 8000)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, s := failTogether(api.MaxElements, why)
			before := waiting(s)
			if len(before) < 50_000 || len(before) > mostInTrouble {
				t.Fatalf("%d elements wait for another attempt", len(before))
			}
			data, err := json.Marshal(s)
			if err != nil || len(data) > 600<<10 {
				t.Fatalf("%d elements wait, the state has %d bytes (%v)", len(before), len(data), err)
			}
			t.Logf("%d elements wait, the state has %d bytes", len(before), len(data))
			if s, err = carried(s); err != nil {
				t.Fatal(err)
			}
			after := waiting(s)
			if len(after) != len(before) {
				t.Fatalf("%d elements wait, %d after it was carried over", len(before), len(after))
			}
			for i := range after {
				later := after[i].NextAt.Sub(*before[i].NextAt)
				if after[i].Number != before[i].Number || later < 0 || later >= time.Second {
					t.Fatalf("%+v became %+v, its time %v later", before[i], after[i], later)
				}
			}
			b, ok := s.Begin(d, start.Add(48*time.Hour))
			if !ok || b.Elements[0] != before[0].Number || slices.Min(b.Attempts) != 2 || slices.Max(b.Attempts) != 2 {
				t.Errorf("after it was carried over, %v begin as the attempts %v", b.Elements, b.Attempts)
			}
		})
	}
}

func TestAllThatWaitsIsCancelledTogether(t *testing.T) {
	t.Parallel()
	_, s := failTogether(api.MaxElements, "no disk")
	began := time.Now()
	s.Cancel("enough")
	s.CancelHeld("enough")
	t.Logf("Cancel took %v", time.Since(began))
	completed := api.MaxElements * 8 / 100
	want := api.ElementCounts{Total: api.MaxElements, Completed: completed, Cancelled: api.MaxElements - completed}
	if s.Counts != want {
		t.Errorf("after the cancellation there are %+v", s.Counts)
	}
	if data, _ := json.Marshal(s); strings.Contains(string(data), "troubles") {
		t.Error("the state keeps what it knew of elements that have ended")
	}
}

// BenchmarkCancel shows that a cancellation takes as long for each element however many there are.
func BenchmarkCancel(b *testing.B) {
	for _, count := range []int{api.MaxElements / 8, api.MaxElements / 2, api.MaxElements} {
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			_, s := failTogether(count, "no disk")
			data, _ := json.Marshal(s)
			for b.Loop() {
				b.StopTimer()
				s = &array.State{}
				if err := json.Unmarshal(data, s); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				s.Cancel("enough")
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*count), "ns/element")
		})
	}
}

func TestADamagedStateIsRefused(t *testing.T) {
	t.Parallel()
	for _, troubles := range []string{`"AAAA"`, `"!"`, `""`, `7`, `[7]`, `{}`} {
		if err := json.Unmarshal([]byte(`{"troubles":`+troubles+`}`), &array.State{}); err == nil {
			t.Errorf("the troubles %s are read", troubles)
		}
	}
}

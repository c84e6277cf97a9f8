package array

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
)

// What is known of one element is kept and forgotten without a look at any other: what ends n elements takes n steps.
func TestNoOtherTroubleMoves(t *testing.T) {
	t.Parallel()
	var l troubles
	l.keep(trouble{Number: api.MaxElements - 1})
	slots := &l.of[0]
	known := map[int]*trouble{}
	for n := range api.MaxElements {
		l.keep(trouble{Number: n, Size: n % 3})
		known[n] = l.find(n)
	}
	for n := range api.MaxElements {
		if l.find(n) != known[n] {
			t.Fatalf("what is known of element %d has moved", n)
		}
		if n%2 == 0 {
			l.forget(n)
		}
	}
	halved := 0
	for n := range api.MaxElements {
		switch found := l.find(n); {
		case n%2 == 0 && found != nil:
			t.Fatalf("element %d is not forgotten", n)
		case n%2 == 1 && found != known[n]:
			t.Fatalf("what is known of element %d has moved", n)
		case n%2 == 1 && found.Size > 1:
			halved++
		}
	}
	if &l.of[0] != slots || l.count != api.MaxElements/2 || l.halved != halved {
		t.Errorf("of %d elements %d are in small bundles, counted as %d and %d", api.MaxElements/2, halved, l.count,
			l.halved)
	}
}

// inTrouble is a state with elements that differ as much as they can.
func inTrouble(count int) *State {
	random := rand.New(rand.NewPCG(1, uint64(count)))
	numbers := random.Perm(api.MaxElements)[:count]
	slices.Sort(numbers)
	marks := []byte(strings.Repeat("c", api.MaxElements))
	var l troubles
	for _, n := range numbers {
		marks[n] = 'w'
		l.keep(trouble{n, 1 + random.IntN(300), task.Tally{Failures: random.IntN(100), Losses: random.IntN(100),
			Returns: random.IntN(3), NotReceived: random.IntN(3)}, []int{0, 1, 6, 25}[random.IntN(4)], random.IntN(2) == 0,
			time.Unix(1_800_000_000+random.Int64N(30*86_400), 0).UTC()})
	}
	return &State{Counts: api.ElementCounts{Total: api.MaxElements, Queued: count, Completed: api.MaxElements - count},
		Marks: marks, Troubles: l, Bundles: 3000}
}

func TestAStateIsCarriedOver(t *testing.T) {
	t.Parallel()
	for _, count := range []int{1, 2000, 499 + MaxParallel*api.MaxBundle} {
		t.Run(fmt.Sprint(count), func(t *testing.T) {
			t.Parallel()
			s := inTrouble(count)
			data, err := json.Marshal(s)
			if err != nil || len(data) > 700<<10 {
				t.Fatalf("the state has %d bytes (%v)", len(data), err)
			}
			next := &State{}
			if err := json.Unmarshal(data, next); err != nil {
				t.Fatal(err)
			}
			again, err := json.Marshal(next)
			if err != nil || string(again) != string(data) {
				t.Errorf("a state that was written and read is another one (%v)", err)
			}
			d := &Definition{Spec: api.TaskSpec{Type: "work", Cluster: "c"}, Count: api.MaxElements}
			later := time.Unix(1_900_000_000, 0)
			for range 3 {
				b, _ := s.Begin(d, later)
				other, _ := next.Begin(d, later)
				if !slices.Equal(b.Elements, other.Elements) || !slices.Equal(b.Attempts, other.Attempts) {
					t.Fatalf("%+v begins, after it was carried over %+v", b, other)
				}
			}
		})
	}
}

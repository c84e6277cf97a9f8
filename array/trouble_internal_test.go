package array

import (
	"testing"

	"mainstay.dev/mainstay/fleet"
)

// What is known of one element is kept and forgotten without a look at any other: what ends n elements takes n steps.
func TestNoOtherTroubleMoves(t *testing.T) {
	t.Parallel()
	var l troubles
	l.keep(trouble{Number: fleet.MaxElements - 1})
	slots := &l.of[0]
	known := map[int]*trouble{}
	for n := range fleet.MaxElements {
		l.keep(trouble{Number: n, Size: n % 3})
		known[n] = l.find(n)
	}
	for n := range fleet.MaxElements {
		if l.find(n) != known[n] {
			t.Fatalf("what is known of element %d has moved", n)
		}
		if n%2 == 0 {
			l.forget(n)
		}
	}
	halved := 0
	for n := range fleet.MaxElements {
		switch found := l.find(n); {
		case n%2 == 0 && found != nil:
			t.Fatalf("element %d is not forgotten", n)
		case n%2 == 1 && found != known[n]:
			t.Fatalf("what is known of element %d has moved", n)
		case n%2 == 1 && found.Size > 1:
			halved++
		}
	}
	if &l.of[0] != slots || l.count != fleet.MaxElements/2 || l.halved != halved {
		t.Errorf("of %d elements %d are in small bundles, counted as %d and %d", fleet.MaxElements/2, halved, l.count,
			l.halved)
	}
}

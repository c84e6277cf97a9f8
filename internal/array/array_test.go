package array_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/array"
	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func define(change func(*array.Definition)) *array.Definition {
	d := &array.Definition{Spec: api.TaskSpec{Type: "work", Cluster: "c"}, Count: 1000}
	if change != nil {
		change(d)
	}
	return d
}

func TestDefinitionIsValidated(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		change func(*array.Definition)
		ok     bool
	}{
		{"count", func(*array.Definition) {}, true},
		{"as many as it may have", func(d *array.Definition) { d.Count = api.MaxElements }, true},
		{"too many", func(d *array.Definition) { d.Count = api.MaxElements + 1 }, false},
		{"none", func(d *array.Definition) { d.Count = 0 }, false},
		{"items", func(d *array.Definition) { d.Count, d.Items = 0, []json.RawMessage{[]byte("1")} }, true},
		{"items and count", func(d *array.Definition) { d.Items = []json.RawMessage{[]byte("1")} }, false},
		{"items too large together", func(d *array.Definition) {
			d.Count, d.Items = 0, []json.RawMessage{make([]byte, task.MaxItemsBytes), []byte("1")}
		}, false},
		{"payload too large", func(d *array.Definition) { d.Spec.Payload = make([]byte, 257<<10) }, false},
		{"too parallel", func(d *array.Definition) { d.Parallel = array.MaxParallel + 1 }, false},
		{"tolerates less than none", func(d *array.Definition) { d.Tolerate = new(-1) }, false},
		{"start_at", func(d *array.Definition) { d.Spec.StartAt = start }, false},
		{"no type", func(d *array.Definition) { d.Spec.Type = "" }, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if err := define(test.change).Validate(); (err == nil) != test.ok {
				t.Errorf("Validate: %v, want valid = %v", err, test.ok)
			}
		})
	}
}

func TestIDsOfElements(t *testing.T) {
	t.Parallel()
	id, n, ok := array.ElementOf(array.ElementID("a-1", 17))
	if id != "a-1" || n != 17 || !ok {
		t.Errorf("ElementOf(ElementID) = %q, %d, %v", id, n, ok)
	}
	for _, other := range []string{"a-1", "a-1~step.3", array.BundleID("a-1", 3), "a-1~.03", "a-1~.-1"} {
		if _, _, ok := array.ElementOf(other); ok {
			t.Errorf("ElementOf(%q) finds an element", other)
		}
	}
}

// completed are results that complete elements.
func completed(elements []int, ms int64) array.End {
	end := array.End{AttemptEnd: task.AttemptEnd{Outcome: api.AttemptCompleted}}
	for _, n := range elements {
		end.Results = append(end.Results, api.ElementResult{Number: n, Outcome: api.AttemptCompleted,
			Milliseconds: ms})
	}
	return end
}

var lost = array.End{AttemptEnd: task.AttemptEnd{Outcome: api.AttemptLost, Begun: true, Reason: "gone"}}

func TestBundlesHaveTheSizeOfASecond(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		ms    int64
		first int
		then  int
		of    func(*array.Definition)
	}{
		{0, 4, 100, nil},
		{1, 4, 100, nil},
		{40, 4, 25, nil},
		{5000, 4, 1, nil},
		{1, 1, 1, func(d *array.Definition) { d.Spec.RetrySafety = api.AtMostOnce }},
		{1, 1, 1, func(d *array.Definition) { d.Spec.RetrySafety = api.Unmarked }},
		{1, 1, 1, func(d *array.Definition) { d.Spec.BeaconTimeout = api.Duration(time.Minute) }},
		{1, 4, 2, func(d *array.Definition) { d.Spec.Payload = make([]byte, 100<<10) }},
	} {
		d := define(test.of)
		if test.then == 2 {
			test.first = 2 // 256 KiB
		}
		s := array.New(d.Total())
		b, ok := s.Begin(d, start)
		if !ok || len(b.Elements) != test.first {
			t.Errorf("%d ms: the first bundle has %d elements, want %d", test.ms, len(b.Elements), test.first)
		}
		s.Take(d, "a", b.Number, completed(b.Elements, test.ms), start)
		if b, ok = s.Begin(d, start); !ok || len(b.Elements) != test.then {
			t.Errorf("%d ms: the second bundle has %d elements, want %d", test.ms, len(b.Elements), test.then)
		}
	}
}

func TestNoMoreBundlesAreUnderWayThanMayBe(t *testing.T) {
	t.Parallel()
	d := define(func(d *array.Definition) { d.Parallel = 3 })
	s := array.New(d.Total())
	for range 3 {
		if _, ok := s.Begin(d, start); !ok {
			t.Fatal("a bundle did not begin")
		}
	}
	if _, ok := s.Begin(d, start); ok {
		t.Error("a fourth bundle began, max_parallel is 3")
	}
}

func TestAResultCountsOnce(t *testing.T) {
	t.Parallel()
	d := define(nil)
	s := array.New(d.Total())
	b, _ := s.Begin(d, start)
	end := completed(append(slices.Clone(b.Elements), b.Elements[0], 999), 1)
	s.Take(d, "a", b.Number, end, start)
	s.Take(d, "a", b.Number, end, start)
	if want := 2 + len(end.Results); s.Counts.Completed != len(b.Elements) || s.Duplicates != want {
		t.Errorf("%d completed, %d duplicates, want %d and %d", s.Counts.Completed, s.Duplicates, len(b.Elements), want)
	}
}

func TestWhatABundleLeavesUndoneIsDeliveredAgain(t *testing.T) {
	t.Parallel()
	d := define(func(d *array.Definition) { d.Count = 4 })
	s := array.New(d.Total())
	b, _ := s.Begin(d, start)
	s.Take(d, "a", b.Number, completed(b.Elements[:1], 1), start)
	again, ok := s.Begin(d, start)
	if !ok || !slices.Equal(again.Elements, b.Elements[1:]) || again.Attempts[0] != 1 {
		t.Errorf("after %v with %v done comes %v (attempts %v)", b.Elements, b.Elements[:1], again.Elements, again.Attempts)
	}
}

func TestElementsAreTriedAgainOneByOne(t *testing.T) {
	t.Parallel()
	d := define(func(d *array.Definition) { d.Count, d.Spec.Retry.MaxAttempts = 4, 2 })
	s := array.New(d.Total())
	now, attempts := start, 0
	for s.Open() {
		b, ok := s.Begin(d, now)
		if !ok {
			now = s.Wake(d, now)
			continue
		}
		end := completed(b.Elements, 1)
		for i := range end.Results {
			if end.Results[i].Number == 2 {
				attempts++
				end.Results[i].Outcome, end.Results[i].Error = api.AttemptFailed, "no disk"
			}
		}
		s.Take(d, "a", b.Number, end, now)
	}
	found, _ := s.Elements("a", api.ElementDeadLetter, 0, 10)
	if attempts != 2 || len(found) != 1 || found[0].Number != 2 || found[0].Why == "" || s.Counts.Completed != 3 {
		t.Errorf("after %d attempts the dead letters are %+v, of %+v", attempts, found, s.Counts)
	}
	if err := s.MayRetry([]int{1}); err == nil {
		t.Error("a completed element may be retried")
	}
	s.Retry([]int{2, 2})
	if s.Counts.Queued != 1 || s.Counts.DeadLetter != 0 {
		t.Errorf("after a retry of one, which was named twice, there are %+v", s.Counts)
	}
	b, ok := s.Begin(d, now)
	if !ok || !slices.Equal(b.Elements, []int{2}) || b.Attempts[0] <= 2 {
		t.Errorf("after a retry comes %+v", b)
	}
}

func TestAnAgentThatKnowsNoBundlesGetsElementsOneByOne(t *testing.T) {
	t.Parallel()
	d := define(nil)
	s := array.New(d.Total())
	b, _ := s.Begin(d, start)
	s.Take(d, "a", b.Number, array.End{AttemptEnd: task.AttemptEnd{Outcome: api.AttemptReturned, Unhandled: true}},
		start)
	next, ok := s.Begin(d, start)
	if !ok || !next.Single() {
		t.Errorf("after a bundle that no agent can take comes %+v", next)
	}
}

func TestDeliveriesThatNoAgentTakesAreSpaced(t *testing.T) {
	t.Parallel()
	d := define(nil)
	s := array.New(d.Total())
	now := start
	for range 6 {
		b, ok := s.Begin(d, now)
		if !ok {
			break
		}
		s.Take(d, "a", b.Number, array.End{AttemptEnd: task.AttemptEnd{Outcome: api.AttemptReturned}}, now)
	}
	if at := s.Wake(d, now); !at.After(now) {
		t.Errorf("six deliveries were returned at once, and the next may begin at %v", at)
	}
}

func TestElementsThatNoAgentTakesExpire(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]array.End{
		"in the lane": {Expired: true},
		"returned":    {AttemptEnd: task.AttemptEnd{Outcome: api.AttemptReturned, Unhandled: true}},
	} {
		d := define(nil)
		s := array.New(d.Total())
		deliveries, now := 0, start
		for ; s.Open() && deliveries < 10_000; deliveries++ {
			b, ok := s.Begin(d, now)
			if !ok {
				now = s.Wake(d, now)
				continue
			}
			if end.Expired {
				now = now.Add(api.DefaultExpiration)
			}
			s.Take(d, "a", b.Number, end, now)
		}
		if s.Counts.Failed != d.Count || deliveries > 300 || now.Sub(start) > api.DefaultExpiration+time.Minute {
			t.Errorf("%s: after %v and %d deliveries: %+v", name, now.Sub(start), deliveries, s.Counts)
		}
	}
}

func TestToleratedFailures(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		tolerate *int
		failing  int
		status   api.ArrayStatus
	}{
		{nil, 0, api.ArrayCompleted},
		{nil, 3, api.ArrayFailed},
		{new(3), 3, api.ArrayPartial},
		{new(2), 3, api.ArrayFailed},
		{new(0), 1, api.ArrayFailed},
	} {
		d := define(func(d *array.Definition) { d.Tolerate, d.Parallel = test.tolerate, 1 })
		s := array.New(d.Total())
		for s.Open() {
			b, _ := s.Begin(d, start)
			end := completed(b.Elements, 0)
			for i := range end.Results {
				if end.Results[i].Number < test.failing {
					end.Results[i].Outcome, end.Results[i].NonRetryable = api.AttemptFailed, true
				}
			}
			s.Take(d, "a", b.Number, end, start)
		}
		status, why := s.Outcome(d, false)
		stopped := test.tolerate != nil && test.failing > *test.tolerate
		if status != test.status || stopped != (s.Counts.Cancelled > 0) {
			t.Errorf("%d failures: %s (%s) with %+v, want %s", test.failing, status, why, s.Counts, test.status)
		}
	}
}

// A poison element among many: its bundle's agents are lost, only it is blamed, and few agents are lost.
func TestOnlyThePoisonElementIsBlamed(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		random := rand.New(rand.NewPCG(seed, 1))
		d := define(func(d *array.Definition) { d.Count = 10_000 })
		s := array.New(d.Total())
		poison, losses, now := random.IntN(d.Count), 0, start
		flying := map[int]array.Bundle{}
		for s.Open() {
			for {
				b, ok := s.Begin(d, now)
				if !ok {
					break
				}
				flying[b.Number] = b
			}
			// Three bundles are at work on one agent; it is lost with all of them if one has the poison.
			var agent []array.Bundle
			for _, number := range shuffled(random, flying)[:min(3, len(flying))] {
				agent = append(agent, flying[number])
				delete(flying, number)
			}
			end := array.End{}
			if slices.ContainsFunc(agent, func(b array.Bundle) bool { return slices.Contains(b.Elements, poison) }) {
				losses++
				end = lost
			}
			for _, b := range agent {
				if end.Outcome == "" {
					s.Take(d, "a", b.Number, completed(b.Elements, 1), now)
					continue
				}
				s.Take(d, "a", b.Number, end, now)
			}
			if len(agent) == 0 {
				now = s.Wake(d, now)
			}
		}
		dead, _ := s.Elements("a", api.ElementDeadLetter, 0, 10)
		if len(dead) != 1 || dead[0].Number != poison || losses > 5 || s.Counts.Completed != d.Count-1 {
			t.Fatalf("seed %d: poison %d, %d agents lost, dead %+v, %+v", seed, poison, losses, dead, s.Counts)
		}
		if why := dead[0].Why; !strings.Contains(why, fmt.Sprintf("in %d attempts", losses)) {
			t.Fatalf("seed %d: %d agents lost, and it says: %s", seed, losses, why)
		}
	}
}

func shuffled(random *rand.Rand, of map[int]array.Bundle) []int {
	var numbers []int
	for n := range of {
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	random.Shuffle(len(numbers), func(i, j int) { numbers[i], numbers[j] = numbers[j], numbers[i] })
	return numbers
}

// Whatever happens to bundles, no element is in two of them, none ends twice, the counts are right, and the array ends.
// The state is written and read again whenever nothing is under way, as when its workflow continues as new.
func TestPropertiesOfRandomArrays(t *testing.T) {
	t.Parallel()
	for seed := range uint64(100) {
		if err := randomArray(seed); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

func randomArray(seed uint64) error {
	random := rand.New(rand.NewPCG(seed, 2))
	safety := []api.RetrySafety{api.Idempotent, api.Fenced, api.AtMostOnce, api.Unmarked}[seed%4]
	d := define(func(d *array.Definition) {
		d.Count, d.Parallel, d.Spec.RetrySafety = 1+random.IntN(300), 1+random.IntN(8), safety
	})
	s := array.New(d.Total())
	var flying []array.Bundle
	ends, begun, lastAttempt := map[int]int{}, map[int]int{}, map[int]int{}
	for now, steps := start, 0; s.Open(); steps++ {
		if steps > 100_000 {
			return errors.New("it does not end")
		}
		for b, ok := s.Begin(d, now); ok; b, ok = s.Begin(d, now) {
			for i, n := range b.Elements {
				if slices.ContainsFunc(flying, func(o array.Bundle) bool { return slices.Contains(o.Elements, n) }) {
					return fmt.Errorf("element %d is in two bundles", n)
				}
				if b.Single() && b.Attempts[i] <= lastAttempt[n] {
					return fmt.Errorf("element %d has attempt %d after %d", n, b.Attempts[i], lastAttempt[n])
				}
				lastAttempt[n] = b.Attempts[i] - 1
				if b.Single() {
					lastAttempt[n] = b.Attempts[i]
				}
			}
			flying = append(flying, b)
		}
		if len(flying) == 0 {
			if s.Counts.Running != 0 {
				return fmt.Errorf("nothing is under way, %d elements run", s.Counts.Running)
			}
			if now = s.Wake(d, now); now.IsZero() {
				return errors.New("nothing is under way, and it does not wake")
			}
			var err error
			if s, err = carried(s); err != nil {
				return err
			}
			continue
		}
		i := random.IntN(len(flying))
		b := flying[i]
		flying = slices.Delete(flying, i, i+1)
		end := randomEnd(random, b)
		if end.Begun {
			for _, n := range b.Elements {
				begun[n]++
			}
		}
		for _, r := range end.Results {
			if r.Outcome == api.AttemptCompleted {
				ends[r.Number]++
			}
		}
		s.Take(d, "a", b.Number, end, now)
		now = now.Add(time.Duration(random.IntN(1000)) * time.Millisecond)
		c := s.Counts
		if c.Queued+c.Running+c.Review+c.DeadLetter+c.Completed+c.Failed+c.Cancelled != d.Count {
			return fmt.Errorf("the counts are wrong: %+v", c)
		}
	}
	for n, times := range ends {
		if times > 1 {
			return fmt.Errorf("element %d completed %d times", n, times)
		}
	}
	for n, times := range begun {
		if safety == api.AtMostOnce && times > 1 {
			return fmt.Errorf("the at_most_once element %d began %d times", n, times)
		}
	}
	return nil
}

// carried is the state after a workflow has continued as new.
func carried(s *array.State) (*array.State, error) {
	data, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	next := &array.State{}
	return next, json.Unmarshal(data, next)
}

// randomEnd is an end of a bundle that can be.
func randomEnd(random *rand.Rand, b array.Bundle) array.End {
	switch random.IntN(8) {
	case 0:
		return lost
	case 1:
		return array.End{AttemptEnd: task.AttemptEnd{Outcome: api.AttemptReturned, Unhandled: random.IntN(2) == 0,
			NotReceived: random.IntN(4) == 0}}
	case 2:
		return array.End{AttemptEnd: task.AttemptEnd{Outcome: api.AttemptMoved, Begun: true, Planned: true}}
	case 3:
		if b.Single() {
			return array.End{AttemptEnd: task.AttemptEnd{Outcome: api.AttemptFailed, Begun: true, Reason: "failed"}}
		}
	}
	end := completed(b.Elements, int64(random.IntN(300)))
	end.Begun = true
	if b.Single() {
		return end
	}
	end.Results = end.Results[:random.IntN(len(end.Results)+1)]
	for i := range end.Results {
		if random.IntN(4) == 0 {
			end.Results[i].Outcome, end.Results[i].Error = api.AttemptFailed, "failed"
		}
	}
	return end
}

func TestDigestsOfTheSameArray(t *testing.T) {
	t.Parallel()
	of := func(text string) string {
		var d array.Definition
		require.NoError(t, json.Unmarshal([]byte(text), &d))
		digest, err := d.Digest()
		require.NoError(t, err)
		return digest
	}
	const one = `{"spec":{"type":"x","cluster":"c"},"items":[{"a":1,"b":"x/y"},2]}`
	require.Equal(t, of(one), of(`{"items":[ {"b":"\u0078\/y","a":1}, 2],"spec":{"cluster":"c","type":"x"}}`))
	require.Equal(t, of(one), of(`{"spec":{"type":"x","cluster":"c","priority":3},"max_parallel":64,"items":[{"a":1,"b":"x/y"},2]}`))
	for _, other := range []string{
		`{"spec":{"type":"x","cluster":"c"},"items":[{"a":1.0,"b":"x/y"},2]}`,
		`{"spec":{"type":"x","cluster":"c"},"items":[2,{"a":1,"b":"x/y"}]}`,
		`{"spec":{"type":"x","cluster":"c"},"items":[{"a":1,"b":"x/y"},2],"tolerate":1}`,
		`{"spec":{"type":"x","cluster":"c"},"count":2}`,
	} {
		require.NotEqual(t, of(one), of(other), other)
	}
}

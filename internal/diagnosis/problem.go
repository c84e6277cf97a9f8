// Package diagnosis says in words what is wrong with a fleet and why work waits. It reads facts and decisions of other
// packages, and decides nothing itself.
package diagnosis

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"mainstay.dev/sdk/api"
)

// namedInProblem bounds how many agents or shards a problem names.
const namedInProblem = 5

// Sort puts the most urgent problems first, and of equally urgent ones the newest.
func Sort(problems []api.Problem) {
	rank := map[api.Severity]int{api.SeverityCritical: 0, api.SeverityWarning: 1, api.SeverityNotice: 2}
	at := func(p *api.Problem) time.Time {
		if p.Since == nil {
			return time.Time{}
		}
		return *p.Since
	}
	slices.SortStableFunc(problems, func(a, b api.Problem) int {
		return cmp.Or(rank[a.Severity]-rank[b.Severity], at(&b).Compare(at(&a)), strings.Compare(a.What, b.What))
	})
}

// since is the time of a problem in UTC; nil for the zero time.
func since(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// clockTime writes an instant into a text.
func clockTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// listOf names the first entries of a list and counts the rest.
func listOf(names []string, most int) string {
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
}

// first returns at most n entries of a list.
func first[T any](list []T, n int) []T { return list[:min(n, len(list))] }

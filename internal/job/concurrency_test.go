package job_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/sdk/api"
)

func bounded(c *api.Concurrency) *job.Job {
	j := &job.Job{Name: "nightly"}
	j.Apply(api.JobDefinition{Job: "nightly", Concurrency: c}, "ada", time.Time{})
	return j
}

func admit(runs ...string) (list []job.Verdict) {
	for _, run := range runs {
		list = append(list, job.Verdict{Run: run})
	}
	return list
}

func TestRunsWithOneKeyWaitForEachOther(t *testing.T) {
	t.Parallel()
	j := bounded(&api.Concurrency{MaxRuns: 2})
	require.Equal(t, admit("a"), j.Begin("a", "x"))
	require.Equal(t, admit("b"), j.Begin("b", "x"))
	require.Empty(t, j.Begin("c", "x"))
	require.Equal(t, admit("d"), j.Begin("d", "y"), "another key counts for itself")
	require.Empty(t, j.Begin("e", "x"))
	require.True(t, j.Waits())
	require.Equal(t, admit("a"), j.Begin("a", "x"), "asked again, the answer is the same")
	require.Empty(t, j.Begin("c", "x"))
	require.Empty(t, j.End("d"))
	require.Equal(t, admit("c"), j.End("a"), "the one that has waited longest")
	require.Equal(t, admit("e"), j.End("b", "unknown"))
	require.Equal(t, []string{"c", "e"}, j.Holders())
	require.False(t, j.Waits())
}

func TestOneMoreRunIsSkippedOrTakesThePlaceOfTheOldest(t *testing.T) {
	t.Parallel()
	j := bounded(&api.Concurrency{Then: api.ThenSkip})
	require.Equal(t, admit("a"), j.Begin("a", ""))
	skipped := j.Begin("b", "")
	require.True(t, skipped[0].Skip)
	require.Equal(t, "1 of at most 1 runs go already, and the job's concurrency says skip", skipped[0].Why)
	require.Equal(t, []string{"a"}, j.Holders())

	j = bounded(&api.Concurrency{Then: api.ThenCancelOther})
	require.Equal(t, admit("a"), j.Begin("a", ""))
	taken := j.Begin("b", "")
	require.Equal(t, []job.Verdict{{Run: "a", Admission: job.Admission{Cancel: true, Why: "run b takes its place"}}}, taken)
	require.Equal(t, "b", j.Begin("c", "")[0].Run, "the one that waits is older than the newest")
	require.Empty(t, j.End("b"))
	require.Equal(t, admit("c"), j.End("a"))
}

func TestAnotherDefinitionMayRaiseTheBound(t *testing.T) {
	t.Parallel()
	j := bounded(&api.Concurrency{})
	j.Begin("a", "")
	j.Begin("b", "")
	require.False(t, j.Apply(*j.Definition(), "bob", time.Time{}), "the same definition is the same version")
	require.Equal(t, 1, j.Version)
	require.True(t, j.Apply(api.JobDefinition{Job: "nightly"}, "bob", time.Time{}))
	require.Equal(t, admit("b"), j.Admit())
	for range 10 {
		d := *j.Definition()
		d.Priority++
		j.Apply(d, "bob", time.Time{})
	}
	require.Equal(t, 12, j.Version)
	require.Len(t, j.Versions, job.VersionsKept)
	require.Nil(t, j.Find(6))
	require.Equal(t, 7, j.Find(7).Version)
}

// Package slow marks the tests that wait for real thresholds, or take long.
package slow

import "testing"

// Test skips a test with -short. `make test` gives -short; `make test SHORT=` and CI run everything.
func Test(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("it takes long; make test SHORT= runs it")
	}
}

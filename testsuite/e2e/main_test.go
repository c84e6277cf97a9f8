package e2e

import (
	"testing"
	"time"

	"mainstay.dev/mainstay/testsuite/plane"
)

// patience bounds the waits for what must come; a test that passes needs little of it.
const patience = time.Minute

func TestMain(m *testing.M) {
	plane.RecordTraces()
	plane.Main(m)
}

package e2e

import (
	"testing"

	"mainstay.dev/mainstay/testsuite/plane"
)

func TestMain(m *testing.M) {
	plane.RecordTraces()
	plane.Main(m)
}

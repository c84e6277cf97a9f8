package worker

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCachesFitTheMemory(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	for memory, want := range map[uint64]int{0: 1000, gib: 100, 4 * gib: 256, 16 * gib: 1000, 256 * gib: 1000} {
		require.Equal(t, want, cacheFor(memory), memory)
	}
}

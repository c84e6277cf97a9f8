package api

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReservedIDs(t *testing.T) {
	t.Parallel()
	for id, ok := range map[string]bool{"a-1": true, "tasks": false, "clusters": false, "register": false,
		"tasks-1": true, "A": false} {
		require.Equal(t, ok, ValidateAgentID(id) == nil, id)
	}
	for id, ok := range map[string]bool{"t-1": true, "queue": false, "batch": false, "tasks": true, "": false} {
		require.Equal(t, ok, ValidateTaskID(id) == nil, id)
	}
}

package mesh_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/mesh"
)

// The document's commands ask for a task of one type, which they need not say.
func TestCommandsAreTasks(t *testing.T) {
	t.Parallel()
	for command, want := range map[string]string{"InvokeModel": "model", "InvokeTool": "mcp-tool"} {
		e := structured(map[string]string{"id": "1", "source": "/s", "type": command}, `{}`)
		_, spec, err := mesh.ReadAssignment(e, json.RawMessage(`{"cluster":"c","executionId":"x","stepId":"2"}`))
		require.NoError(t, err)
		require.Equal(t, want, spec.Type)
		_, _, err = mesh.ReadAssignment(e, json.RawMessage(`{"cluster":"c","type":"exec"}`))
		require.ErrorContains(t, err, "asks for a task of type "+want)
	}
}

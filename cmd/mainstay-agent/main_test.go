package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTheAgentIsSmall lists what is linked into the program: nothing of Temporal, and no part of the control plane.
func TestTheAgentIsSmall(t *testing.T) {
	t.Parallel()
	list, err := exec.Command("go", "list", "-deps", ".").Output()
	require.NoError(t, err)
	packages := strings.Fields(string(list))
	require.Contains(t, packages, "mainstay.dev/mainstay/agent")
	for _, name := range packages {
		require.NotContains(t, name, "temporal")
		for _, part := range []string{"contract", "controlplane", "devserver", "gateway", "guard", "hub", "store", "worker",
			"workflows"} {
			require.NotEqual(t, "mainstay.dev/mainstay/"+part, name)
		}
	}
}

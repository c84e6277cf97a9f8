package main

import (
	"crypto/x509"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAnEmptyImageHasAuthorities runs the other half of this test where the system has no authorities.
func TestAnEmptyImageHasAuthorities(t *testing.T) {
	if os.Getenv("SSL_CERT_FILE") != "/none" {
		again := exec.Command(os.Args[0], "-test.run=^TestAnEmptyImageHasAuthorities$")
		again.Env = append(os.Environ(), "SSL_CERT_FILE=/none", "SSL_CERT_DIR=/none")
		output, err := again.CombinedOutput()
		require.NoError(t, err, string(output))
		return
	}
	pool, err := x509.SystemCertPool()
	require.NoError(t, err)
	require.False(t, pool.Equal(x509.NewCertPool()))
}

// TestTheProgramIsLean lists what is linked into it: nothing of Temporal, and no part of the control plane.
func TestTheProgramIsLean(t *testing.T) {
	t.Parallel()
	list, err := exec.Command("go", "list", "-deps", ".").Output()
	require.NoError(t, err)
	packages := strings.Fields(string(list))
	require.Contains(t, packages, "mainstay.dev/sdk/agent")
	for _, name := range packages {
		require.NotContains(t, name, "temporal")
		require.NotContains(t, name, "testify")
		for _, part := range []string{"gateway", "worker", "workflows", "internal/contract", "internal/controlplane",
			"internal/devserver", "internal/guard", "internal/hub", "internal/store"} {
			require.NotEqual(t, "mainstay.dev/mainstay/"+part, name)
		}
	}
}

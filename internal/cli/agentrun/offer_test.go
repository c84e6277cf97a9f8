package agentrun

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/api"
)

func TestOffer(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // no nvidia-smi
	path := filepath.Join(t.TempDir(), "offer.yaml")
	log := slog.New(slog.DiscardHandler)
	require.NoError(t, os.WriteFile(path, []byte(`memory: 4Gi
devices: [{kind: gpu, vendor: nvidia, memory: 24Gi}, {kind: gpu, index: 1}]
ports: 20000-21000
volumes: [{name: models, path: /srv/models}]
`), 0o600))
	o := offer{file: path, ports: "30000-30010", volumes: []string{"base=/srv/base:ro"}}
	r, err := o.resources(t.Context(), log)
	require.NoError(t, err)
	require.NotEmpty(t, r.CPU, "what the file leaves out is the machine's")
	require.Equal(t, "4Gi", r.Memory)
	require.Equal(t, []api.Device{{Kind: "gpu", Vendor: "nvidia", Memory: "24Gi"}, {Kind: "gpu", Index: 1}}, r.Devices)
	require.Equal(t, "30000-30010", r.Ports)
	require.Equal(t, []api.Volume{{Name: "models", Path: "/srv/models"}, {Name: "base", Path: "/srv/base",
		ReadOnly: true}}, r.Volumes)
	require.NoError(t, r.Validate())

	_, err = (&offer{volumes: []string{"models"}}).resources(t.Context(), log)
	require.EqualError(t, err, "--volume must be like NAME=PATH")
	require.NoError(t, os.WriteFile(path, []byte("gpus: 2\n"), 0o600))
	_, err = (&offer{file: path}).resources(t.Context(), log)
	require.ErrorContains(t, err, "gpus")
}

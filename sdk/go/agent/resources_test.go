//go:build unix

package agent_test

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/agent/agenttest"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// smi puts a fake nvidia-smi before all else on PATH.
func smi(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "nvidia-smi"), []byte("#!/bin/sh\n"+script), 0o700))
	t.Setenv("PATH", dir+":/usr/bin:/bin")
}

func TestDetectsWhatTheMachineHas(t *testing.T) {
	smi(t, `[ "$*" = "--query-gpu=index,name,memory.total --format=csv,noheader,nounits" ] || exit 3
echo "0, NVIDIA H100 80GB HBM3, 81559"
echo "1, GRID T4-2Q, [N/A]"`)
	found, err := agent.DetectResources(t.Context())
	require.NoError(t, err)
	require.NoError(t, found.Validate())
	require.Equal(t, []api.Device{
		{Kind: "gpu", Vendor: "nvidia", Model: "h100-80gb-hbm3", Memory: "81559Mi"},
		{Kind: "gpu", Vendor: "nvidia", Model: "grid-t4-2q", Index: 1},
	}, found.Devices)
	require.NotEmpty(t, found.CPU)

	smi(t, "echo No devices were found; exit 6")
	found, err = agent.DetectResources(t.Context())
	require.ErrorContains(t, err, "nvidia-smi does not tell which GPUs there are: exit status 6")
	require.Empty(t, found.Devices)
	require.NotEmpty(t, found.CPU)

	t.Setenv("PATH", t.TempDir())
	found, err = agent.DetectResources(t.Context())
	require.NoError(t, err, "there is no nvidia-smi")
	require.Empty(t, found.Devices)
}

func TestCommandGetsItsAllocation(t *testing.T) {
	t.Parallel()
	port, dir := freePort(t), t.TempDir()
	hub := agenttest.NewHub(t, agenttest.Options{})
	start(t, hub, func(o *agent.Options) {
		o.Resources = &api.Inventory{Volumes: []api.Volume{{Name: "models", Path: dir}, {Name: "other", Path: "/"}}}
	}, map[string]agent.Handler{agent.ExecType: agent.ExecHandler()})
	require.Equal(t, dir, hub.WaitRegistered(1).Resources.Volumes[0].Path)
	hub.Assign(protocol.Assignment{TaskID: "t1", Type: agent.ExecType, Payload: json.RawMessage(`{"command":["env"]}`),
		Allocation: &api.Allocation{
			Devices: []api.DeviceShare{{Kind: "gpu", Index: 2}, {Kind: "gpu", Memory: "8Gi"}, {Kind: "fpga", Index: 1}},
			Volumes: []api.VolumeDemand{{Name: "models"}},
			Ports:   map[string]int{"http-api": port},
		}})
	result := hub.WaitResult("t1")
	require.Equal(t, api.AttemptCompleted, result.Outcome, result.Error)
	var out agent.ExecResult
	require.NoError(t, json.Unmarshal(result.Output, &out))
	lines := strings.Split(out.Stdout, "\n")
	require.Subset(t, lines, []string{"CUDA_VISIBLE_DEVICES=2,0", "CUDA_DEVICE_ORDER=PCI_BUS_ID",
		"MAINSTAY_DEVICES_GPU=2,0", "MAINSTAY_DEVICES_FPGA=1", "MAINSTAY_VOLUME_MODELS=" + dir,
		"MAINSTAY_PORT_HTTP_API=" + strconv.Itoa(port)})
	require.NotContains(t, out.Stdout, "MAINSTAY_VOLUME_OTHER")
}

// freePort is below those that the kernel gives to sockets which ask for none.
func freePort(t *testing.T) int {
	for port := 9000; ; port++ {
		if l, err := net.Listen("tcp", ":"+strconv.Itoa(port)); err == nil {
			require.NoError(t, l.Close())
			return port
		}
	}
}

func TestPortInUseGoesBack(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port
	hub := agenttest.NewHub(t, agenttest.Options{})
	start(t, hub, nil, map[string]agent.Handler{"echo": func(context.Context, *agent.Task) (any, error) { return 1, nil }})
	hub.WaitRegistered(1)
	hub.Assign(protocol.Assignment{TaskID: "t1", Type: "echo",
		Allocation: &api.Allocation{Ports: map[string]int{"http": port}}})
	poll := hub.WaitPoll("the delivery comes back", func(p protocol.Poll) bool { return len(p.Returned) > 0 })
	require.Equal(t, port, poll.Returned[0].PortInUse)
	require.Empty(t, hub.Results())
}

func TestVolumesMustBeFolders(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"", "models", "/no/such/folder", "/etc/passwd"} {
		_, err := agent.New(agent.Options{HubURLs: []string{"http://127.0.0.1:1"}, Cluster: "c", ID: "a",
			Resources: &api.Inventory{Volumes: []api.Volume{{Name: "models", Path: path}}}})
		require.ErrorContains(t, err, "volume models: its path must be the absolute path of a folder", path)
	}
}

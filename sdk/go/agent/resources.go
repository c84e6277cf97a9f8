package agent

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"mainstay.dev/sdk/api"
)

// smiTimeout bounds nvidia-smi, which takes seconds where no driver keeps the devices awake.
const smiTimeout = 20 * time.Second

// DetectResources finds what the machine has: cores and memory that the process may use, what the file system of its
// working directory has left, and the GPUs that nvidia-smi lists, if there is one. Memory and disk are not known on
// systems other than Linux. Each agent of a machine finds all of it.
func DetectResources(ctx context.Context) (api.Inventory, error) {
	found := api.Inventory{Amounts: api.Amounts{CPU: strconv.Itoa(runtime.GOMAXPROCS(0)),
		Disk: mebibytes(diskFree())}}
	_, meminfo := readHost()
	if _, total, ok := parseMemory(meminfo); ok {
		total *= 1 << 10
		if limit, limited := memoryLimit(); limited {
			total = min(total, limit)
		}
		found.Memory = mebibytes(total)
	}
	ctx, cancel := context.WithTimeout(ctx, smiTimeout)
	defer cancel()
	list, err := exec.CommandContext(ctx, "nvidia-smi", "--query-gpu=index,name,memory.total",
		"--format=csv,noheader,nounits").Output()
	if errors.Is(err, exec.ErrNotFound) {
		return found, nil
	}
	if err == nil {
		found.Devices, err = parseGPUs(string(list))
	}
	if err != nil {
		return found, fmt.Errorf("agent: nvidia-smi does not tell which GPUs there are: %w", err)
	}
	return found, nil
}

func mebibytes(n uint64) string {
	if n < 1<<20 {
		return ""
	}
	return strconv.FormatUint(n>>20, 10) + "Mi"
}

// parseGPUs reads lines such as "0, NVIDIA H100 80GB HBM3, 81559". A GPU of unknown memory is only given out whole.
func parseGPUs(list string) ([]api.Device, error) {
	lines := csv.NewReader(strings.NewReader(list))
	lines.TrimLeadingSpace = true
	lines.FieldsPerRecord = 3
	all, err := lines.ReadAll()
	if err != nil {
		return nil, err
	}
	var devices []api.Device
	for _, line := range all {
		index, err := strconv.Atoi(line[0])
		if err != nil {
			return nil, err
		}
		d := api.Device{Kind: "gpu", Vendor: "nvidia", Model: modelOf(line[1]), Index: index}
		if size, err := strconv.ParseUint(strings.TrimSpace(line[2]), 10, 40); err == nil {
			d.Memory = mebibytes(size << 20)
		}
		devices = append(devices, d)
	}
	return devices, nil
}

// modelOf makes "h100-80gb-hbm3" of "NVIDIA H100 80GB HBM3".
func modelOf(name string) string {
	words := strings.FieldsFunc(strings.ToLower(name), func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < '0' || c > '9')
	})
	model := strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "nvidia" }), "-")
	return model[:min(len(model), api.MaxIDLength)]
}

func checkResources(r *api.Inventory) error {
	if r == nil {
		return nil
	}
	if err := r.Validate(); err != nil {
		return fmt.Errorf("agent: Resources: %w", err)
	}
	for _, v := range r.Volumes {
		if info, err := os.Stat(v.Path); err != nil || !info.IsDir() || !filepath.IsAbs(v.Path) {
			return fmt.Errorf("agent: Resources: volume %s: its path must be the absolute path of a folder", v.Name)
		}
	}
	return nil
}

// portInUse is one of an allocation's ports that the agent cannot listen on; 0: it can on all.
func portInUse(a *api.Allocation) int {
	if a == nil {
		return 0
	}
	for _, port := range a.Ports {
		listener, err := net.Listen("tcp", ":"+strconv.Itoa(port))
		if err != nil {
			return port
		}
		_ = listener.Close()
	}
	return 0
}

// volumesOf are the paths of an allocation's volumes.
func volumesOf(r *api.Inventory, a *api.Allocation) map[string]string {
	if r == nil || a == nil {
		return nil
	}
	paths := map[string]string{}
	for _, v := range r.Volumes {
		if slices.ContainsFunc(a.Volumes, func(given api.VolumeDemand) bool { return given.Name == v.Name }) {
			paths[v.Name] = v.Path
		}
	}
	return paths
}

// Environment are the task's ports, volumes and devices as environment variables, for a process that does its work:
// MAINSTAY_PORT_<NAME>, MAINSTAY_VOLUME_<NAME> and MAINSTAY_DEVICES_<KIND>, which has the devices' numbers, and for
// GPUs CUDA_VISIBLE_DEVICES too. Names are in capitals, with "_" for other characters.
func (t *Task) Environment() []string {
	if t.Allocation == nil {
		return nil
	}
	var env []string
	set := func(prefix, name, value string) {
		env = append(env, prefix+strings.Map(func(c rune) rune {
			if c == '-' || c == '.' {
				return '_'
			}
			return c
		}, strings.ToUpper(name))+"="+value)
	}
	for name, port := range t.Allocation.Ports {
		set("MAINSTAY_PORT_", name, strconv.Itoa(port))
	}
	for name, path := range t.Volumes {
		set("MAINSTAY_VOLUME_", name, path)
	}
	devices, cuda := map[string][]string{}, true
	for _, d := range t.Allocation.Devices {
		devices[d.Kind] = append(devices[d.Kind], strconv.Itoa(d.Index))
		cuda = cuda && (d.Kind != "gpu" || d.Vendor == "" || d.Vendor == "nvidia")
	}
	for kind, indexes := range devices {
		set("MAINSTAY_DEVICES_", kind, strings.Join(indexes, ","))
	}
	if gpus := devices["gpu"]; gpus != nil && cuda { // numbered as nvidia-smi does
		env = append(env, "CUDA_DEVICE_ORDER=PCI_BUS_ID", "CUDA_VISIBLE_DEVICES="+strings.Join(gpus, ","))
	}
	slices.Sort(env)
	return env
}

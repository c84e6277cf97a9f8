package agentrun

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"mainstay.dev/mainstay/internal/config/document"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
)

// offer has the flags about the resources that tasks may ask for.
type offer struct {
	file, ports string
	volumes     []string
}

func (o *offer) flags(flags *pflag.FlagSet) {
	flags.StringVar(&o.file, "resources", "",
		"YAML file with what tasks may ask for: cpu, memory, disk, devices, ports, volumes (default: what the machine has)")
	flags.StringVar(&o.ports, "ports", "", "ports that it gives to tasks that ask for one, as 20000-21000")
	flags.StringArrayVar(&o.volumes, "volume", nil,
		"folder that tasks may ask for, as NAME=PATH, or NAME=PATH:ro for tasks that only read it (repeatable)")
}

// resources are those of the file and the flags; the machine's fill in what they leave out.
func (o *offer) resources(ctx context.Context, log *slog.Logger) (*api.Inventory, error) {
	r := &api.Inventory{}
	if o.file != "" {
		text, err := os.ReadFile(o.file)
		if err != nil {
			return nil, fmt.Errorf("read what the agent offers: %w", err)
		}
		if _, err := document.Read(o.file, text, r, nil); err != nil {
			return nil, err
		}
	}
	found, err := agent.DetectResources(ctx)
	if err != nil && r.Devices == nil {
		log.Warn("The agent offers no GPUs: list its devices in the file of --resources, or write devices: [] there",
			"error", err)
	}
	r.CPU, r.Memory, r.Disk = cmp.Or(r.CPU, found.CPU), cmp.Or(r.Memory, found.Memory), cmp.Or(r.Disk, found.Disk)
	if r.Devices == nil {
		r.Devices = found.Devices
	}
	r.Ports = cmp.Or(o.ports, r.Ports)
	for _, text := range o.volumes {
		name, path, found := strings.Cut(text, "=")
		if !found {
			return nil, fmt.Errorf("--volume must be like NAME=PATH")
		}
		path, readOnly := strings.CutSuffix(path, ":ro")
		r.Volumes = append(r.Volumes, api.Volume{Name: name, Path: path, ReadOnly: readOnly})
	}
	return r, nil
}

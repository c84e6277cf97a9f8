package api

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Bounds of what a task may ask for and what an agent may offer.
const (
	maxDeviceDemands = 8
	maxNamedDemands  = 16
	maxDevices       = 64
	maxPort          = 65535
)

// Demand is what a task needs of its agent's machine while it runs. It is bookkeeping: nothing stops a task that takes
// more.
type Demand struct {
	Resources Amounts               `json:"resources,omitzero" doc:"CPU, memory and disk that it needs."`
	Devices   []DeviceDemand        `json:"devices,omitempty" maxItems:"8" doc:"Devices such as GPUs. It gets different ones for each entry."`
	Volumes   []VolumeDemand        `json:"volumes,omitempty" maxItems:"16" doc:"Folders of the agent's machine, by their names there."`
	Ports     map[string]PortDemand `json:"ports,omitempty" maxProperties:"16" doc:"TCP ports to listen on, by names of the task's choice."`
}

// Amounts are amounts of what every machine has. An empty one is none.
type Amounts struct {
	CPU    string `json:"cpu,omitempty" maxLength:"32" doc:"Cores, as \"2\", \"0.5\" or \"500m\"."`
	Memory string `json:"memory,omitempty" maxLength:"32" doc:"Bytes, as \"512Mi\" or \"4Gi\"."`
	Disk   string `json:"disk,omitempty" maxLength:"32" doc:"Bytes, as \"10Gi\"."`
}

// DeviceDemand asks for devices of one kind.
type DeviceDemand struct {
	Kind   string `json:"kind" maxLength:"63" doc:"Such as gpu."`
	Vendor string `json:"vendor,omitempty" maxLength:"63" doc:"Such as nvidia. Left out: any."`
	Model  string `json:"model,omitempty" maxLength:"63" doc:"Such as h100, which h100-80gb-hbm3 is one of. Left out: any."`
	Count  int    `json:"count,omitempty" minimum:"1" maximum:"64" doc:"How many. Default 1."`
	Memory string `json:"memory,omitempty" maxLength:"32" doc:"Memory of each, as \"8Gi\". Others may have the rest of the device. Left out: the whole device."`
	Share  *bool  `json:"share,omitempty" doc:"false: the whole device, of at least that memory. Default true."`
}

// VolumeDemand asks for a volume of the agent.
type VolumeDemand struct {
	Name     string `json:"name" maxLength:"63"`
	ReadOnly bool   `json:"read_only,omitempty" doc:"The task only reads it, so a read-only volume will do."`
}

// PortDemand asks for a port: a certain one, or any of the agent's range.
type PortDemand struct {
	Static int `json:"static,omitempty" minimum:"1" maximum:"65535" doc:"This port, which only one task of a host has at a time. Left out: any port of the agent's range."`
}

// Inventory is what an agent offers to tasks that ask for resources.
type Inventory struct {
	Amounts
	Devices []Device `json:"devices,omitempty" maxItems:"64"`
	Ports   string   `json:"ports,omitempty" maxLength:"32" doc:"The range of ports that it gives away, as 20000-21000."`
	Volumes []Volume `json:"volumes,omitempty" maxItems:"64"`
}

// Device is a device of an agent.
type Device struct {
	Kind   string `json:"kind" maxLength:"63" doc:"Such as gpu."`
	Vendor string `json:"vendor,omitempty" maxLength:"63"`
	Model  string `json:"model,omitempty" maxLength:"63"`
	Index  int    `json:"index,omitempty" minimum:"0" maximum:"1023" doc:"Its number among the devices of its kind, from 0."`
	Memory string `json:"memory,omitempty" maxLength:"32" doc:"As \"24Gi\". Left out: it can only be had whole."`
}

// Volume is a folder that an agent lets tasks use.
type Volume struct {
	Name     string `json:"name" maxLength:"63"`
	Path     string `json:"path,omitempty" maxLength:"1024" doc:"Where it is on the agent's machine."`
	ReadOnly bool   `json:"read_only,omitempty" doc:"Only for tasks that ask to read it only."`
}

// IsZero reports whether a task asks for nothing.
func (d Demand) IsZero() bool {
	return d.Resources == Amounts{} && len(d.Devices) == 0 && len(d.Volumes) == 0 && len(d.Ports) == 0
}

// Validate checks bounds, names and amounts. Its errors are FieldErrors that begin with "place.".
func (d *Demand) Validate() error {
	if _, err := d.Resources.Values("place.resources."); err != nil {
		return err
	}
	if len(d.Devices) > maxDeviceDemands {
		return WrongField("place.devices", "may have at most %d entries: use count", maxDeviceDemands)
	}
	for i := range d.Devices {
		if err := d.Devices[i].validate(fmt.Sprintf("place.devices[%d].", i)); err != nil {
			return err
		}
	}
	if len(d.Volumes) > maxNamedDemands || len(d.Ports) > maxNamedDemands {
		return WrongField("place", "may have at most %d volumes and as many ports", maxNamedDemands)
	}
	names := make([]string, len(d.Volumes))
	for i, v := range d.Volumes {
		names[i] = v.Name
	}
	if err := validateNames("place.volumes", names); err != nil {
		return err
	}
	ports := slices.Sorted(maps.Keys(d.Ports))
	static := map[int]bool{}
	for _, name := range ports {
		port := d.Ports[name].Static
		if port < 0 || port > maxPort || port > 0 && static[port] {
			return WrongField("place.ports", "must have different static ports, from 1 to %d", maxPort)
		}
		static[port] = true
	}
	return validateNames("place.ports", ports)
}

func (d *DeviceDemand) validate(at string) error {
	if err := validateDevice(at, d.Kind, d.Vendor, d.Model, d.Memory); err != nil {
		return err
	}
	if d.Count < 0 || d.Count > maxDevices {
		return WrongField(at+"count", "must be 1 to %d", maxDevices)
	}
	return nil
}

// Whole reports whether nobody else may have the devices.
func (d *DeviceDemand) Whole() bool { return d.Memory == "" || d.Share != nil && !*d.Share }

// Validate checks bounds, names and amounts. Its errors are FieldErrors.
func (v *Inventory) Validate() error {
	if _, err := v.Values(""); err != nil {
		return err
	}
	if len(v.Devices) > maxDevices || len(v.Volumes) > maxDevices {
		return WrongField("devices", "and volumes may have at most %d entries each", maxDevices)
	}
	seen := map[string]bool{}
	for i := range v.Devices {
		at, d := fmt.Sprintf("devices[%d].", i), &v.Devices[i]
		if err := validateDevice(at, d.Kind, d.Vendor, d.Model, d.Memory); err != nil {
			return err
		}
		id := deviceID(d.Kind, d.Index)
		if d.Index < 0 || d.Index > 1023 || seen[id] {
			return WrongField(at+"index", "must be 0 to 1023, and different for each device of a kind")
		}
		seen[id] = true
	}
	names := make([]string, len(v.Volumes))
	for i := range v.Volumes {
		names[i] = v.Volumes[i].Name
	}
	if err := validateNames("volumes", names); err != nil {
		return err
	}
	if _, _, err := v.PortRange(); err != nil {
		return &FieldError{"ports", err}
	}
	return nil
}

// PortRange is the first and the last port that the agent gives away; 0 and -1 where it has none.
func (v *Inventory) PortRange() (first, last int, err error) {
	if v.Ports == "" {
		return 0, -1, nil
	}
	from, to, _ := strings.Cut(v.Ports, "-")
	first, err1 := strconv.Atoi(from)
	last, err2 := strconv.Atoi(to)
	if err1 != nil || err2 != nil || first < 1 || last < first || last > maxPort {
		return 0, -1, fmt.Errorf("must be a range of ports, like 20000-21000")
	}
	return first, last, nil
}

func validateDevice(at, kind, vendor, model, memory string) error {
	for _, f := range []struct{ name, value string }{{"kind", kind}, {"vendor", vendor}, {"model", model}} {
		if err := ValidateID(f.name, f.value); err != nil && (f.value != "" || f.name == "kind") {
			return &FieldError{at + f.name, err}
		}
	}
	if _, err := ParseBytes(memory); err != nil {
		return &FieldError{at + "memory", err}
	}
	return nil
}

// validateNames checks names that become names of environment variables.
func validateNames(field string, names []string) error {
	seen := map[string]bool{}
	for _, name := range names {
		if ValidateID(field, name) != nil || strings.ContainsAny(name, "._") || seen[name] {
			return WrongField(field, "must have different names of a-z, 0-9 and '-', at most %d characters long", MaxIDLength)
		}
		seen[name] = true
	}
	return nil
}

// Dimensions name Amounts.values.
var Dimensions = [...]string{"cpu", "memory", "disk"}

// Texts are the amounts in the order of dimensions.
func (a *Amounts) Texts() [len(Dimensions)]string { return [...]string{a.CPU, a.Memory, a.Disk} }

// Values are thousandths of a core, and bytes. Errors are FieldErrors whose fields begin with at.
func (a *Amounts) Values(at string) (values [len(Dimensions)]int64, err error) {
	for i, text := range a.Texts() {
		if i == 0 {
			values[i], err = Resources{CPU: text}.MilliCPU()
		} else {
			values[i], err = ParseBytes(text)
		}
		if err != nil {
			return values, &FieldError{at + Dimensions[i], err}
		}
	}
	return values, nil
}

// Allocation has the resources that a hub gave an attempt for its task's demand.
type Allocation struct {
	Amounts
	Devices []DeviceShare  `json:"devices,omitempty"`
	Volumes []VolumeDemand `json:"volumes,omitempty"`
	Ports   map[string]int `json:"ports,omitempty"`
}

// DeviceShare is a device, or a part of its memory.
type DeviceShare struct {
	Kind   string `json:"kind"`
	Vendor string `json:"vendor,omitempty"`
	Index  int    `json:"index"`
	Memory string `json:"memory,omitempty" doc:"Absent: the whole device."`
}

func deviceID(kind string, index int) string { return fmt.Sprint(kind, " ", index) }

// Matches reports whether a device is of the kind. The model h100-80gb is one of h100.
func (d *DeviceDemand) Matches(has *Device) bool {
	return has.Kind == d.Kind && (d.Vendor == "" || has.Vendor == d.Vendor) &&
		(d.Model == "" || has.Model == d.Model || strings.HasPrefix(has.Model, d.Model+"-"))
}

// Words are as "2 whole nvidia gpu", or "gpu memory 8Gi".
func (d *DeviceDemand) Words() string {
	var words []string
	if d.Count > 1 {
		words = append(words, fmt.Sprint(d.Count))
	}
	if d.Whole() {
		words = append(words, "whole")
	}
	for _, word := range []string{d.Vendor, d.Model, d.Kind} {
		if word != "" {
			words = append(words, word)
		}
	}
	if d.Memory != "" {
		words = append(words, "memory", d.Memory)
	}
	return strings.Join(words, " ")
}

// Words are what the demand asks for, one for each thing.
func (d *Demand) Words() (words []string) {
	r := d.Resources
	for _, of := range [][2]string{{"cpu", r.CPU}, {"memory", r.Memory}, {"disk", r.Disk}} {
		if of[1] != "" {
			words = append(words, of[0]+" "+of[1])
		}
	}
	for i := range d.Devices {
		words = append(words, d.Devices[i].Words())
	}
	for _, v := range d.Volumes {
		words = append(words, "volume "+v.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(d.Ports)) {
		word := "a port"
		if static := d.Ports[name].Static; static != 0 {
			word = fmt.Sprint("port ", static)
		}
		words = append(words, word)
	}
	return words
}

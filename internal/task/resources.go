package task

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"
	"strings"

	"mainstay.dev/sdk/api"
)

// Stock is what an agent has left.
type Stock struct {
	inventory *api.Inventory
	free      [len(api.Dimensions)]int64
	devices   []deviceStock
	ports     *Ports
}

// Ports are the ports of a host that are in use. In nil all are free.
type Ports struct {
	taken portSet // nobody gets them
	inUse portSet // these, and ports freed only a short time ago
}

// portSet has a bit for each port, in pages of 1,024 where there is one.
type portSet [64]*[16]uint64

func (s *portSet) add(port int) {
	page := &s[uint16(port)>>10]
	if *page == nil {
		*page = new([16]uint64)
	}
	(*page)[uint16(port)>>6&15] |= 1 << (uint16(port) & 63)
}

// word has the bits of the ports from 64*i on.
func (s *portSet) word(i int) uint64 {
	if page := s[i>>4]; page != nil {
		return page[i&15]
	}
	return 0
}

func (s *portSet) has(port int) bool { return s.word(int(uint16(port)>>6))&(1<<(uint16(port)&63)) != 0 }

// Take takes the ports that an attempt on an agent of the host has.
func (p *Ports) Take(a *api.Allocation) {
	for _, port := range a.Ports {
		p.TakePort(port, false)
	}
}

// TakePort takes a port that somebody else has. One that only rests may still be asked for by its number.
func (p *Ports) TakePort(port int, rests bool) {
	p.inUse.add(port)
	if !rests {
		p.taken.add(port)
	}
}

func (p *Ports) isTaken(port int) bool { return p != nil && p.taken.has(port) }
func (p *Ports) isInUse(port int) bool { return p != nil && p.inUse.has(port) }

// freeOf is how many ports of a range are free.
func (p *Ports) freeOf(first, last int) int {
	n := max(0, last-first+1)
	if p == nil || n == 0 {
		return n
	}
	for i := first / 64; i <= last/64; i++ {
		word := p.inUse.word(i)
		if i == first/64 {
			word &= ^uint64(0) << (first % 64)
		}
		if i == last/64 {
			word &= ^uint64(0) >> (63 - last%64)
		}
		n -= bits.OnesCount64(word)
	}
	return n
}

type deviceStock struct {
	*api.Device
	total, free int64
	users       int
	whole       bool // one of them has all of it
}

// NewStock is all that an agent has; nil offers nothing.
func NewStock(inventory *api.Inventory) *Stock {
	s := &Stock{inventory: inventory}
	if inventory == nil {
		return s
	}
	s.free, _ = inventory.Values("") // it was validated, as all that follows
	for i := range inventory.Devices {
		d := &inventory.Devices[i]
		total, _ := api.ParseBytes(d.Memory)
		s.devices = append(s.devices, deviceStock{Device: d, total: total, free: total})
	}
	return s
}

// Take takes an attempt's allocation from the stock. It takes ports only if On has listed the host's; nil is nothing.
func (s *Stock) Take(a *api.Allocation) {
	if a == nil {
		return
	}
	values, _ := a.Values("")
	for i := range values {
		s.free[i] -= values[i]
	}
	s.takeDevices(a.Devices)
	if s.ports != nil {
		s.ports.Take(a)
	}
}

func (s *Stock) takeDevices(shares []api.DeviceShare) {
	for _, share := range shares {
		for i := range s.devices {
			d := &s.devices[i]
			if d.Kind == share.Kind && d.Index == share.Index {
				memory, _ := api.ParseBytes(share.Memory)
				d.users, d.free, d.whole = d.users+1, d.free-memory, d.whole || share.Memory == ""
			}
		}
	}
}

// On is what the agent has left where these ports of its host are in use, its own ones among them.
func (s *Stock) On(ports *Ports) *Stock {
	left := *s
	left.ports = ports
	return &left
}

// Allocate finds the part of the stock for a demand, without taking it. If something is missing, lacking names the
// first missing thing.
func (s *Stock) Allocate(d *api.Demand) (a *api.Allocation, lacking string) {
	if s.inventory == nil {
		return nil, "resources that it tells of"
	}
	a = &api.Allocation{Amounts: d.Resources, Volumes: d.Volumes}
	values, _ := d.Resources.Values("")
	for i, text := range d.Resources.Texts() {
		if values[i] > max(0, s.free[i]) {
			return nil, api.Dimensions[i] + " " + text
		}
	}
	if a.Devices, lacking = s.findDevices(d.Devices); lacking != "" {
		return nil, lacking
	}
	if lacking = s.lackingVolume(d.Volumes); lacking != "" {
		return nil, "volume " + lacking
	}
	if a.Ports, lacking = s.findPorts(d.Ports); lacking != "" {
		return nil, lacking
	}
	return a, ""
}

func (s *Stock) lackingVolume(demands []api.VolumeDemand) string {
	for _, v := range demands {
		if !slices.ContainsFunc(s.inventory.Volumes, func(has api.Volume) bool {
			return has.Name == v.Name && (v.ReadOnly || !has.ReadOnly)
		}) {
			return v.Name
		}
	}
	return ""
}

// findDevices gives each demand devices of its own: first to demands for whole ones, then to the largest shares. A
// share comes from the device with the least left that suffices.
func (s *Stock) findDevices(demands []api.DeviceDemand) (shares []api.DeviceShare, lacking string) {
	order := demands
	if len(demands) > 1 {
		weight := func(d *api.DeviceDemand) int64 {
			memory, _ := api.ParseBytes(d.Memory)
			if d.Whole() {
				memory += 1 << 60
			}
			return memory
		}
		order = slices.Clone(demands)
		slices.SortStableFunc(order, func(a, b api.DeviceDemand) int { return cmp.Compare(weight(&b), weight(&a)) })
	}
	var used []*api.Device
	for i := range order {
		demand := &order[i]
		memory, _ := api.ParseBytes(demand.Memory)
		for range max(1, demand.Count) {
			var best *deviceStock
			for j := range s.devices {
				d := &s.devices[j]
				fits := d.free >= memory && !d.whole && (d.users == 0 || !demand.Whole())
				better := best == nil || d.free < best.free
				if fits && better && demand.Matches(d.Device) && !slices.Contains(used, d.Device) {
					best = d
				}
			}
			if best == nil {
				return nil, demand.Words()
			}
			used = append(used, best.Device)
			share := api.DeviceShare{Kind: best.Kind, Vendor: best.Vendor, Index: best.Index}
			if !demand.Whole() {
				share.Memory = demand.Memory
			}
			shares = append(shares, share)
		}
	}
	return shares, ""
}

func (s *Stock) findPorts(demands map[string]api.PortDemand) (ports map[string]int, lacking string) {
	if len(demands) == 0 {
		return nil, ""
	}
	ports = map[string]int{}
	given := map[int]bool{}
	//workflowcheck:ignore
	names := slices.Sorted(maps.Keys(demands)) // in the order of the names
	for _, name := range names {
		if port := demands[name].Static; port > 0 {
			if s.ports.isTaken(port) {
				return nil, fmt.Sprint("port ", port)
			}
			ports[name], given[port] = port, true
		}
	}
	next, last, _ := s.inventory.PortRange()
	for _, name := range names {
		if demands[name].Static > 0 {
			continue
		}
		for next <= last && (s.ports.isInUse(next) || given[next]) {
			next++
		}
		if next > last {
			return nil, "a port of its range"
		}
		ports[name], given[next] = next, true
	}
	return ports, ""
}

// Room is how often Allocate and Take of a demand would succeed; most bounds it.
func (s *Stock) Room(d *api.Demand, most int) int {
	if s.inventory == nil || s.lackingVolume(d.Volumes) != "" {
		return 0
	}
	values, _ := d.Resources.Values("")
	for i, value := range values {
		if value > 0 {
			most = int(min(int64(most), max(0, s.free[i])/value))
		}
	}
	if len(d.Ports) > 0 && most > 0 {
		most = min(most, s.portRoom(d.Ports))
	}
	if len(d.Devices) > 0 && most > 0 {
		most = s.deviceRoom(d.Devices, most)
	}
	return most
}

func (s *Stock) portRoom(demands map[string]api.PortDemand) int {
	first, last, _ := s.inventory.PortRange()
	static, ranged, within := false, 0, 0
	for _, d := range demands {
		switch port := d.Static; {
		case port == 0:
			ranged++
		case s.ports.isTaken(port):
			return 0
		default:
			static = true
			if first <= port && port <= last && !s.ports.isInUse(port) {
				within++
			}
		}
	}
	room := math.MaxInt
	if ranged > 0 {
		room = (s.ports.freeOf(first, last) - within) / ranged
	}
	if static {
		room = min(room, 1)
	}
	return max(0, room)
}

func (s *Stock) deviceRoom(demands []api.DeviceDemand, most int) (n int) {
	if d := &demands[0]; len(demands) == 1 && d.Count <= 1 {
		memory, _ := api.ParseBytes(d.Memory)
		for i := range s.devices {
			switch has := &s.devices[i]; {
			case has.whole || has.free < memory || !d.Matches(has.Device):
			case !d.Whole():
				n += int(min(int64(most), has.free/memory))
			case has.users == 0:
				n++
			}
		}
		return min(n, most)
	}
	left := &Stock{devices: slices.Clone(s.devices)}
	for ; n < most; n++ {
		shares, lacking := left.findDevices(demands)
		if lacking != "" {
			break
		}
		left.takeDevices(shares)
	}
	return n
}

// Fullness is the share of memory that is in use on the devices of an allocation with it, 0 to 1; 0 without devices.
// Where it is largest, the allocation leaves most room elsewhere.
func (s *Stock) Fullness(a *api.Allocation) float64 {
	var used, total int64
	for _, share := range a.Devices {
		for i := range s.devices {
			if d := &s.devices[i]; d.Kind == share.Kind && d.Index == share.Index {
				memory, _ := api.ParseBytes(share.Memory)
				used, total = used+d.total-d.free+memory, total+d.total
			}
		}
	}
	if total == 0 {
		return 0
	}
	return float64(used) / float64(total)
}

// Shortage names what agents lack of a demand, and how many: "gpu memory 64Gi on 2 agents, volume models on 1 agent".
// It is empty when one of them has all of it, or there are none.
func Shortage(d *api.Demand, stocks []*Stock) string {
	counts := map[string]int{}
	for _, s := range stocks {
		_, lacking := s.Allocate(d)
		if lacking == "" {
			return ""
		}
		counts[lacking]++
	}
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(counts[b]-counts[a], cmp.Compare(a, b))
	})
	for i, name := range names {
		names[i] = name + " on " + api.Count(counts[name], "agent")
	}
	return strings.Join(names, ", ")
}

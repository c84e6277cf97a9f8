package task

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mainstay.dev/sdk/api"
)

func gpus(memory ...string) *api.Inventory {
	v := &api.Inventory{Amounts: api.Amounts{CPU: "4", Memory: "8Gi", Disk: "100Gi"}, Ports: "20000-20002",
		Volumes: []api.Volume{{Name: "models", Path: "/models"}, {Name: "base", Path: "/base", ReadOnly: true}}}
	for i, m := range memory {
		v.Devices = append(v.Devices, api.Device{Kind: "gpu", Vendor: "nvidia", Model: "a10-24gb", Index: i, Memory: m})
	}
	return v
}

func gpu(change ...func(*api.DeviceDemand)) api.Demand {
	d := api.DeviceDemand{Kind: "gpu", Memory: "8Gi"}
	for _, c := range change {
		c(&d)
	}
	return api.Demand{Devices: []api.DeviceDemand{d}}
}

func whole(d *api.DeviceDemand) { d.Share = new(false) }

func TestAllocate(t *testing.T) {
	t.Parallel()
	has := func(shares ...api.DeviceShare) *api.Allocation { return &api.Allocation{Devices: shares} }
	share := func(index int, memory string) api.DeviceShare {
		return api.DeviceShare{Kind: "gpu", Vendor: "nvidia", Index: index, Memory: memory}
	}
	for name, c := range map[string]struct {
		inventory *api.Inventory
		used      []*api.Allocation
		taken     map[int]bool // ports: whether they only rest
		demand    api.Demand
		devices   []api.DeviceShare
		ports     map[string]int
		lacking   string
	}{
		"nothing is told": {demand: api.Demand{Resources: api.Amounts{CPU: "1"}}, lacking: "resources that it tells of"},
		"amounts": {inventory: gpus(), used: []*api.Allocation{{Amounts: api.Amounts{CPU: "2500m", Memory: "4Gi"}}},
			demand: api.Demand{Resources: api.Amounts{CPU: "1.5", Memory: "4Gi", Disk: "1Gi"}}},
		"too little cpu": {inventory: gpus(), used: []*api.Allocation{{Amounts: api.Amounts{CPU: "3"}}},
			demand: api.Demand{Resources: api.Amounts{CPU: "1.5"}}, lacking: "cpu 1.5"},
		"too little memory": {inventory: gpus(), demand: api.Demand{Resources: api.Amounts{Memory: "9Gi"}}, lacking: "memory 9Gi"},
		"nothing of what is overdrawn": {inventory: gpus(), used: []*api.Allocation{{Amounts: api.Amounts{CPU: "9"}}},
			demand: api.Demand{Resources: api.Amounts{Memory: "1Gi"}}},
		"a share of the fullest device that has it": {inventory: gpus("24Gi", "24Gi", "24Gi"),
			used: []*api.Allocation{has(share(1, "8Gi")), has(share(2, "20Gi"))}, demand: gpu(),
			devices: []api.DeviceShare{share(1, "8Gi")}},
		"no device has so much left": {inventory: gpus("24Gi", "24Gi"),
			used: []*api.Allocation{has(share(0, "20Gi")), has(share(1, "20Gi"))}, demand: gpu(),
			lacking: "gpu memory 8Gi"},
		"a whole device only where nobody is": {inventory: gpus("24Gi", "24Gi"), used: []*api.Allocation{has(share(0, "1Gi"))},
			demand: gpu(whole), devices: []api.DeviceShare{share(1, "")}},
		"a share of no device that is had whole": {inventory: gpus("24Gi"), used: []*api.Allocation{has(share(0, ""))},
			demand: gpu(), lacking: "gpu memory 8Gi"},
		"whole, but too small": {inventory: gpus("4Gi"), demand: gpu(whole), lacking: "whole gpu memory 8Gi"},
		"without memory it is whole": {inventory: gpus(""), demand: gpu(func(d *api.DeviceDemand) { d.Memory = "" }),
			devices: []api.DeviceShare{share(0, "")}},
		"several are different ones": {inventory: gpus("24Gi"), demand: gpu(func(d *api.DeviceDemand) { d.Count = 2 }),
			lacking: "2 gpu memory 8Gi"},
		"entries get different ones, the whole one first": {inventory: gpus("24Gi", "80Gi"),
			demand: api.Demand{Devices: []api.DeviceDemand{{Kind: "gpu", Memory: "8Gi"}, {Kind: "gpu", Memory: "24Gi",
				Share: new(false)}}}, devices: []api.DeviceShare{share(0, ""), share(1, "8Gi")}},
		"a model of the family": {inventory: gpus("24Gi"), demand: gpu(func(d *api.DeviceDemand) { d.Model = "a10" }),
			devices: []api.DeviceShare{share(0, "8Gi")}},
		"no other model": {inventory: gpus("24Gi"), demand: gpu(func(d *api.DeviceDemand) { d.Model = "a1" }),
			lacking: "a1 gpu memory 8Gi"},
		"no other vendor": {inventory: gpus("24Gi"), demand: gpu(func(d *api.DeviceDemand) { d.Vendor = "amd" }),
			lacking: "amd gpu memory 8Gi"},
		"volumes": {inventory: gpus(), demand: api.Demand{Volumes: []api.VolumeDemand{{Name: "models"}, {Name: "base",
			ReadOnly: true}}}},
		"a read-only volume to write to": {inventory: gpus(), demand: api.Demand{Volumes: []api.VolumeDemand{{Name: "base"}}},
			lacking: "volume base"},
		"ports of the range, none twice": {inventory: gpus(), used: []*api.Allocation{{Ports: map[string]int{"x": 20000}}},
			demand: api.Demand{Ports: map[string]api.PortDemand{"b": {}, "a": {}}}, ports: map[string]int{"a": 20001, "b": 20002}},
		"the range is used up": {inventory: gpus(), taken: map[int]bool{20001: true, 20002: false},
			demand: api.Demand{Ports: map[string]api.PortDemand{"b": {}, "a": {}}}, lacking: "a port of its range"},
		"a static port is no port of the range": {inventory: gpus(),
			demand: api.Demand{Ports: map[string]api.PortDemand{"a": {}, "z": {Static: 20000}, "y": {Static: 80}}},
			ports:  map[string]int{"a": 20001, "z": 20000, "y": 80}},
		"a static port is had once": {inventory: gpus(), taken: map[int]bool{80: false},
			demand: api.Demand{Ports: map[string]api.PortDemand{"a": {Static: 80}}}, lacking: "port 80"},
		"a static port need not rest": {inventory: gpus(), taken: map[int]bool{20001: true},
			demand: api.Demand{Ports: map[string]api.PortDemand{"a": {Static: 20001}}}, ports: map[string]int{"a": 20001}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.NoError(t, c.demand.Validate())
			stock := NewStock(c.inventory).On(&Ports{})
			for _, a := range c.used {
				stock.Take(a)
			}
			for port, rests := range c.taken {
				stock.ports.TakePort(port, rests)
			}
			a, lacking := stock.Allocate(&c.demand)
			require.Equal(t, c.lacking, lacking)
			if lacking == "" {
				require.Equal(t, &api.Allocation{Amounts: c.demand.Resources, Volumes: c.demand.Volumes,
					Devices: c.devices, Ports: c.ports}, a)
			}
		})
	}
}

func TestRoom(t *testing.T) {
	t.Parallel()
	d := gpu()
	require.Equal(t, 3, NewStock(gpus("24Gi")).Room(&d, 10))
	require.Equal(t, 2, NewStock(gpus("24Gi")).Room(&d, 2))
	d = gpu(whole)
	require.Equal(t, 2, NewStock(gpus("24Gi", "8Gi", "4Gi")).Room(&d, 10))
	require.Zero(t, NewStock(nil).Room(&d, 10))
	d = api.Demand{Ports: map[string]api.PortDemand{"http": {}}}
	stock := NewStock(gpus())
	require.Equal(t, 3, stock.Room(&d, 10))
	require.Equal(t, 3, stock.Room(&d, 10), "it takes nothing")
}

// Room counts without trying: as often as there is room, Allocate finds some, and not once more.
func TestRoomIsHowOftenItIsAllocated(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		inventory := gpus(rapid.SliceOfN(rapid.SampledFrom([]string{"", "4Gi", "24Gi"}), 0, 4).Draw(t, "devices")...)
		inventory.Amounts = api.Amounts{CPU: "8", Memory: "16Gi"}
		inventory.Ports = rapid.SampledFrom([]string{"", "20028-20037"}).Draw(t, "range")
		stock := NewStock(inventory).On(&Ports{})
		for port := 20028; port < 20040; port++ {
			if state := rapid.IntRange(0, 4).Draw(t, "port"); state < 2 {
				stock.ports.TakePort(port, state == 0)
			}
		}
		demand := func() *api.Demand {
			d := &api.Demand{}
			d.Resources.CPU = rapid.SampledFrom([]string{"", "500m", "3"}).Draw(t, "cpu")
			d.Resources.Memory = rapid.SampledFrom([]string{"", "2Gi", "20Gi"}).Draw(t, "memory")
			for range rapid.IntRange(0, 2).Draw(t, "kinds") {
				d.Devices = append(d.Devices, api.DeviceDemand{Kind: "gpu", Count: rapid.IntRange(0, 2).Draw(t, "count"),
					Memory: rapid.SampledFrom([]string{"", "1Gi", "8Gi"}).Draw(t, "device memory"),
					Share:  rapid.SampledFrom([]*bool{nil, new(false)}).Draw(t, "share")})
			}
			d.Ports = map[string]api.PortDemand{}
			for i := range rapid.IntRange(0, 3).Draw(t, "ports") {
				d.Ports[fmt.Sprint(i)] = api.PortDemand{Static: rapid.SampledFrom([]int{0, 80 + i, 20030 + i}).Draw(t, "static")}
			}
			return d
		}
		if a, lacking := stock.Allocate(demand()); lacking == "" {
			stock.Take(a)
		}
		d, most := demand(), rapid.IntRange(0, 20).Draw(t, "most")
		got, want := stock.Room(d, most), 0
		for ; want < most; want++ {
			a, lacking := stock.Allocate(d)
			if lacking != "" {
				break
			}
			stock.Take(a)
		}
		require.Equal(t, want, got, "%+v", d)
	})
}

func TestShortage(t *testing.T) {
	t.Parallel()
	d := api.Demand{Devices: gpu().Devices, Volumes: []api.VolumeDemand{{Name: "data"}}}
	require.Empty(t, Shortage(&d, nil))
	lacking := []*Stock{NewStock(gpus("24Gi")), NewStock(gpus("4Gi")), NewStock(gpus())}
	require.Equal(t, "gpu memory 8Gi on 2 agents, volume data on 1 agent", Shortage(&d, lacking))
	d.Volumes = nil
	require.Empty(t, Shortage(&d, lacking), "one has it all")
}

func TestDemandBounds(t *testing.T) {
	t.Parallel()
	for field, d := range map[string]api.Demand{
		"place.resources.cpu":     {Resources: api.Amounts{CPU: "many"}},
		"place.resources.disk":    {Resources: api.Amounts{Disk: "-1"}},
		"place.devices":           {Devices: make([]api.DeviceDemand, 9)},
		"place.devices[0].kind":   {Devices: []api.DeviceDemand{{}}},
		"place.devices[1].memory": {Devices: []api.DeviceDemand{{Kind: "gpu"}, {Kind: "gpu", Memory: "8 apples"}}},
		"place.devices[0].count":  {Devices: []api.DeviceDemand{{Kind: "gpu", Count: 65}}},
		"place.volumes":           {Volumes: []api.VolumeDemand{{Name: "a_b"}}},
		"place":                   {Volumes: make([]api.VolumeDemand, 17)},
		"place.ports":             {Ports: map[string]api.PortDemand{"a": {Static: 80}, "b": {Static: 80}}},
	} {
		var wrong *api.FieldError
		require.ErrorAs(t, d.Validate(), &wrong, field)
		require.Equal(t, field, wrong.Field)
	}
	for field, v := range map[string]api.Inventory{
		"memory":            {Amounts: api.Amounts{Memory: "x"}},
		"devices[1].index":  {Devices: []api.Device{{Kind: "gpu"}, {Kind: "gpu"}}},
		"devices[0].vendor": {Devices: []api.Device{{Kind: "gpu", Vendor: "NVIDIA"}}},
		"ports":             {Ports: "21000-20000"},
		"volumes":           {Volumes: []api.Volume{{Name: "a"}, {Name: "a"}}},
	} {
		var wrong *api.FieldError
		require.ErrorAs(t, v.Validate(), &wrong, field)
		require.Equal(t, field, wrong.Field)
	}
}

func TestPlaceFillsDevicesUp(t *testing.T) {
	t.Parallel()
	d := gpu()
	used, free := NewStock(gpus("24Gi")), NewStock(gpus("24Gi"))
	used.Take(&api.Allocation{Devices: []api.DeviceShare{{Kind: "gpu", Memory: "8Gi"}}})
	candidates := []Candidate{
		{AgentID: "free", MaxTasks: 2, Inventory: gpus("24Gi"), Stock: free},
		{AgentID: "used", MaxTasks: 2, Running: 1, Inventory: gpus("24Gi"), Stock: used},
		{AgentID: "none", MaxTasks: 2, Stock: NewStock(nil)},
	}
	require.Equal(t, 1, Place(&api.TaskSpec{Place: d}, candidates, Hint{}, time.Time{}))
	require.Equal(t, 0, Place(&api.TaskSpec{Place: gpu(whole)}, candidates, Hint{}, time.Time{}))
	require.Equal(t, 0, Place(&api.TaskSpec{}, candidates[:2], Hint{}, time.Time{}), "without devices the less loaded one")
	require.False(t, candidates[2].Fits(&api.TaskSpec{Place: d}))
}

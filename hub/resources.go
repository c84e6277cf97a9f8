package hub

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
)

const (
	// portRestTime is how long after its attempt's end a port of an agent's range is given to nobody: the process may
	// take a while to die, and peers to forget it.
	portRestTime = time.Minute
	// portInUseTime is how long a port that an agent could not listen on is given to nobody.
	portInUseTime = 5 * time.Second
)

// portRest is until when nobody gets a port: as one of an agent's range, or at all.
type portRest struct{ rests, inUse time.Time }

// host is where an agent's ports are. Agents of one host share them. An agent names its host itself, so its address
// belongs to it: another's ports must not be had by naming its host.
func (s *session) host() string {
	return cmp.Or(s.registration.Host, "agent "+s.agent) + " at " + s.from
}

// stockLocked is what a session's agent has left for a demand.
func (h *Hub) stockLocked(s *session, demand *fleet.Demand) *fleet.Stock {
	stock := fleet.NewStock(s.registration.Resources)
	s.eachAllocation(stock.Take)
	if len(demand.Ports) == 0 {
		return stock
	}
	for _, other := range h.sessions {
		if other != s && other.host() == s.host() {
			other.eachAllocation(stock.TakePorts)
		}
	}
	now := time.Now()
	for port, rest := range h.ports[s.host()] {
		if now.Before(rest.inUse) || now.Before(rest.rests) {
			stock.TakePort(port, !now.Before(rest.inUse))
		}
	}
	return stock
}

// eachAllocation calls do with what each attempt, and each handler that is left over, has of the agent's resources.
func (s *session) eachAllocation(do func(*fleet.Allocation)) {
	for _, a := range s.attempts {
		if a.allocation != nil {
			do(a.allocation)
		}
	}
	for _, l := range s.leftovers {
		if l.allocation != nil {
			do(l.allocation)
		}
	}
}

// freePortsLocked frees the ports of an attempt that its session no longer has. If they may have been used, they rest.
func (h *Hub) freePortsLocked(s *session, a *fleet.Allocation, used bool) {
	if a == nil || len(a.Ports) == 0 {
		return
	}
	if used {
		for _, port := range a.Ports {
			h.holdPortLocked(s.host(), port, portRest{rests: time.Now().Add(portRestTime)})
		}
	}
	h.hostChangedLocked(s.host())
}

// hostChangedLocked looks at the lanes of a host's agents again: its ports are taken or free.
func (h *Hub) hostChangedLocked(host string) {
	for _, s := range h.sessions {
		if s.fits && s.host() == host {
			h.slotsChangedLocked(s)
		}
	}
}

// avoidPortLocked keeps a port that an agent cannot listen on from others for a while. It returns why the delivery goes
// back, or "" when the attempt has no such port.
func (h *Hub) avoidPortLocked(a *attempt, port int) string {
	if port == 0 || a.allocation == nil {
		return ""
	}
	now := time.Now()
	for _, given := range a.allocation.Ports {
		if given == port {
			rest := portRest{rests: now.Add(portRestTime), inUse: now.Add(portInUseTime)}
			h.holdPortLocked(a.session.host(), port, rest)
			return fmt.Sprintf("port_in_use: agent %s cannot listen on port %d", a.session.agent, port)
		}
	}
	return ""
}

// holdPortLocked holds a port back, and looks again when a time is over.
func (h *Hub) holdPortLocked(host string, port int, rest portRest) {
	if h.ports[host] == nil {
		h.ports[host] = map[int]portRest{}
	}
	h.ports[host][port] = rest
	look := func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.ports[host][port] == rest && !time.Now().Before(rest.rests) {
			delete(h.ports[host], port)
		}
		h.hostChangedLocked(host)
	}
	time.AfterFunc(time.Until(rest.rests), look)
	if !rest.inUse.IsZero() {
		time.AfterFunc(time.Until(rest.inUse), look)
	}
}

// needOf is what the tasks of a lane ask for; nil: it differs, or is nothing.
func needOf(d contract.Directive, queue string) *fleet.Demand {
	_, name, _ := contract.LaneOfQueue(queue)
	if i := slices.IndexFunc(d.Fits, func(f fleet.Fit) bool { return f.Lane == name }); i >= 0 {
		return &d.Fits[i].Place
	}
	return nil
}

// shortageLocked names what the lane's agents lack of what a task asks for: what is not free now, or what they never
// have.
func (l *lane) shortageLocked(in *contract.RunTaskInput, now bool) string {
	demand := &in.Spec.Place
	if demand.IsZero() {
		return ""
	}
	var stocks []*fleet.Stock
	for s := range l.sessions {
		if now {
			stocks = append(stocks, l.hub.stockLocked(s, demand))
		} else {
			stocks = append(stocks, fleet.NewStock(s.registration.Resources))
		}
	}
	return fleet.Shortage(demand, stocks)
}

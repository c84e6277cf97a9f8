package hub

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
)

const (
	// portRestTime is how long after its attempt's end a port of an agent's range is given to nobody: the process may
	// take a while to die, and peers to forget it.
	portRestTime = time.Minute
	// portInUseTime is how long a port that an agent could not listen on is given to nobody.
	portInUseTime = 5 * time.Second
)

// portRest is until when a port is given to nobody: from an agent's range, or at all.
type portRest struct{ rests, inUse time.Time }

const (
	// lookRest is how long a host's lanes wait for the next look after its ports have changed, in times of how long the
	// last one took: the more agents and lanes there are, the longer.
	lookRest = 4
	// maxLookRest bounds that.
	maxLookRest = 5 * time.Second
)

// host is where an agent's ports are. Agents of one host share them.
type host struct {
	name     string
	sessions map[*session]bool
	rests    map[int]portRest // ports that nobody has and nobody gets now
	ports    *task.Ports      // all that are in use; nil: to be counted anew
	version  int              // of these
	looks    bool             // a look at its lanes is due, or under way
	again    bool             // and one more after it
	rest     time.Duration    // before the next one
}

// resources are what an agent can still give to tasks.
type resources struct {
	host    *host
	stock   *task.Stock     // as far as other agents leave it the ports; nil: to be counted anew
	version int             // of the stock
	meets   map[string]bool // whether it could ever run the tasks of lanes that ask for resources, as far as known
}

// moveLocked puts a session where its agent says that it is. An agent names its host itself, so its address belongs to
// it: another's ports must not be had by naming its host.
func (h *Hub) moveLocked(s *session, from string) {
	s.from = from
	name := cmp.Or(s.registration.Host, "agent "+s.agent) + " at " + from
	if s.resources.host == nil || s.resources.host.name != name {
		h.leaveHostLocked(s)
		if s.resources.host = h.hosts[name]; s.resources.host == nil {
			s.resources.host = &host{name: name, sessions: map[*session]bool{}, rests: map[int]portRest{}}
			h.hosts[name] = s.resources.host
		}
		s.resources.host.sessions[s] = true
	}
	s.resources.stock, s.resources.meets = nil, nil
	s.resources.version++
	s.resources.host.changed()
}

// leaveHostLocked takes a session off its host; it still knows where it was.
func (h *Hub) leaveHostLocked(s *session) {
	if s.resources.host != nil {
		delete(s.resources.host.sessions, s)
		s.resources.host.changed()
		h.forgetHostLocked(s.resources.host)
	}
}

func (h *Hub) forgetHostLocked(x *host) {
	if len(x.sessions) == 0 && len(x.rests) == 0 && h.hosts[x.name] == x {
		delete(h.hosts, x.name)
	}
}

// changed has the host's ports counted anew.
func (x *host) changed() {
	x.ports = nil
	x.version++
}

// reallocated makes the rest be counted anew, where an attempt with this got or lost it.
func (r *resources) reallocated(a *api.Allocation) {
	if a == nil {
		return
	}
	r.stock = nil
	r.version++
	if len(a.Ports) > 0 {
		r.host.changed()
	}
}

// stockLocked is the part of a session's agent that is left for a demand. It is not to be changed.
func (h *Hub) stockLocked(s *session, demand *api.Demand) *task.Stock {
	if s.resources.stock == nil {
		s.resources.stock = task.NewStock(s.registration.Resources)
		s.work.eachAllocation(s.resources.stock.Take)
	}
	if len(demand.Ports) == 0 {
		return s.resources.stock
	}
	x := s.resources.host
	if x.ports == nil {
		x.ports = &task.Ports{}
		for other := range x.sessions {
			other.work.eachAllocation(x.ports.Take)
		}
		now := time.Now()
		for port, rest := range x.rests {
			if now.Before(rest.inUse) || now.Before(rest.rests) {
				x.ports.TakePort(port, !now.Before(rest.inUse))
			}
		}
	}
	return s.resources.stock.On(x.ports)
}

// roomLocked is for how many more of its lane's tasks a session has the resources.
func (h *Hub) roomLocked(t *seat, demand *api.Demand) int {
	s := t.session
	at := roomAt{stock: s.resources.version}
	if len(demand.Ports) > 0 {
		at.host = s.resources.host.version
	}
	if t.roomAt != at {
		t.room, t.roomAt = h.stockLocked(s, demand).Room(demand, h.config.LanePollers), at
	}
	return t.room
}

// roomAt is which state of a session and its host a room is of.
type roomAt struct{ stock, host int }

// freePortsLocked frees the ports of an attempt that its session no longer has. If they may have been used, they rest.
func (h *Hub) freePortsLocked(s *session, a *api.Allocation, used bool) {
	if a == nil || len(a.Ports) == 0 {
		return
	}
	if used {
		for _, port := range a.Ports {
			h.holdPortLocked(s.resources.host, port, portRest{rests: time.Now().Add(portRestTime)})
		}
	}
	h.hostChangedLocked(s.resources.host)
}

// hostChangedLocked looks at the lanes of a host's agents again, soon: its ports are taken or free.
func (h *Hub) hostChangedLocked(x *host) {
	x.changed()
	if x.again = true; !x.looks {
		x.looks = true
		time.AfterFunc(x.rest, func() { h.lookAt(x) })
	}
}

// lookAt looks at the lanes of a host's agents, one agent at a time: others need the hub's lock too.
func (h *Hub) lookAt(x *host) {
	began := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	x.again = false
	for _, s := range slices.Collect(maps.Keys(x.sessions)) {
		if s.serving.fits && x.sessions[s] {
			h.slotsChangedLocked(s)
		}
		h.mu.Unlock()
		h.mu.Lock()
	}
	x.looks, x.rest = false, min(lookRest*time.Since(began), maxLookRest)
	if x.again {
		h.hostChangedLocked(x)
	}
}

// avoidPortLocked keeps a port that an agent cannot listen on from others for a while. It returns why the delivery goes
// back, or "" when the attempt does not have the port.
func (h *Hub) avoidPortLocked(a *attempt, port int) string {
	if port == 0 || a.Allocation == nil {
		return ""
	}
	now := time.Now()
	for _, given := range a.Allocation.Ports {
		if given == port {
			rest := portRest{rests: now.Add(portRestTime), inUse: now.Add(portInUseTime)}
			h.holdPortLocked(a.session.resources.host, port, rest)
			return fmt.Sprintf("port_in_use: agent %s cannot listen on port %d", a.session.agent, port)
		}
	}
	return ""
}

// holdPortLocked holds a port back, and looks again when a time is over.
func (h *Hub) holdPortLocked(x *host, port int, rest portRest) {
	h.hosts[x.name] = x // its last session may have left it
	x.rests[port] = rest
	x.changed()
	look := func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if x.rests[port] == rest && !time.Now().Before(rest.rests) {
			delete(x.rests, port)
			h.forgetHostLocked(x)
		}
		h.hostChangedLocked(x)
	}
	time.AfterFunc(time.Until(rest.rests), look)
	if !rest.inUse.IsZero() {
		time.AfterFunc(time.Until(rest.inUse), look)
	}
}

// meetsNeeds reports whether the session's agent could ever run the tasks of a lane.
func (s *session) meetsNeeds(f *task.Fit) bool {
	r := &s.resources
	meets, known := r.meets[f.Lane]
	if !known {
		meets = task.MeetsNeeds(&f.LaneNeeds, &s.registration.AgentProfile)
		if r.meets == nil || len(r.meets) > 2*cluster.MaxCapabilitySets { // most are of lanes that are closed
			r.meets = map[string]bool{}
		}
		r.meets[f.Lane] = meets
	}
	return meets
}

// needOf is what the tasks of a lane ask for; nil: it differs, or is nothing.
func needOf(d contract.Directive, queue string) *api.Demand {
	_, name, _ := contract.LaneOfQueue(queue)
	i := slices.IndexFunc(d.Fits, func(f task.Fit) bool { return f.Lane == name })
	if i >= 0 && !d.Fits[i].Place.IsZero() {
		return &d.Fits[i].Place
	}
	return nil
}

// shortage names the task's resources that the lane's agents lack: now, or at all.
func (l *lane) shortage(in *contract.RunTaskInput, now bool) string {
	demand := &in.Spec.Place
	if demand.IsZero() {
		return ""
	}
	var stocks []*task.Stock
	for s := range l.sessions {
		if now {
			stocks = append(stocks, l.hub.stockLocked(s, demand))
		} else {
			stocks = append(stocks, task.NewStock(s.registration.Resources))
		}
	}
	return task.Shortage(demand, stocks)
}

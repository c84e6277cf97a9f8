package hub

import (
	"container/heap"
	"strconv"
	"strings"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/task"
)

// ranking orders the sessions of a lane that have a free slot, so that a placement looks at a few of them. It has a
// heap for each kind of agent: agents of a kind can run the same tasks and differ only in their load.
type ranking map[string]*rank

// rank is a heap of sessions of one kind, the least loaded first.
type rank []*seat

// seat is a session in a lane.
type seat struct {
	session *session
	kind    string
	score   float64
	at      int // in its rank; -1: it has no free slot
	slots   int // that the session has for the lane's tasks
	// room is how many of the lane's tasks it has the resources for, by what it had left at roomAt
	room   int
	roomAt roomAt
}

// rankTop is how much of a heap has its best four for certain. A task treats at most three agents in a way of their
// own: the preferred one, the one to avoid, and that of its affinity.
const rankTop = 15

func (r rank) Len() int { return len(r) }
func (r rank) Less(i, j int) bool {
	a, b := r[i], r[j]
	return a.score > b.score || a.score == b.score && a.session.agent < b.session.agent
}
func (r rank) Swap(i, j int) { r[i], r[j] = r[j], r[i]; r[i].at, r[j].at = i, j }

// Push and Pop are for container/heap.
func (r *rank) Push(x any) {
	s := x.(*seat) //nolint:forcetypeassert // only update pushes
	s.at = len(*r)
	*r = append(*r, s)
}

func (r *rank) Pop() any {
	last := (*r)[len(*r)-1]
	(*r)[len(*r)-1], last.at = nil, -1
	*r = (*r)[:len(*r)-1]
	return last
}

// score is how much room the session has beside its load: the larger, the better.
func (s *session) score() float64 {
	c := s.live()
	return c.Room()
}

// update brings a seat up to date with its session, which has this score.
func (r ranking) update(s *seat, score float64) {
	free := s.slots > 0
	if s.at >= 0 && (!free || s.kind != s.session.kind) {
		r.remove(s)
	}
	if !free {
		return
	}
	if s.at >= 0 {
		if score != s.score {
			s.score = score
			heap.Fix(r[s.kind], s.at)
		}
		return
	}
	s.kind, s.score = s.session.kind, score
	if r[s.kind] == nil {
		r[s.kind] = &rank{}
	}
	heap.Push(r[s.kind], s)
}

func (r ranking) remove(s *seat) {
	if s.at < 0 {
		return
	}
	heap.Remove(r[s.kind], s.at)
	if len(*r[s.kind]) == 0 {
		delete(r, s.kind)
	}
}

// shortlist returns the top best sessions of each kind for a delivery. With rankTop the best of all is among them,
// unless it depends on more than their load: all are returned for a task that names a provider, and for one that asks
// for devices, or for resources in a lane of other tasks too.
func (l *lane) shortlist(in *contract.RunTaskInput, top int) []*session {
	if place := &in.Spec.Place; in.Spec.Provider != "" || len(place.Devices) > 0 || !place.IsZero() && l.need == nil {
		top = len(l.sessions)
	}
	var list []*session
	for _, r := range l.ranking {
		for _, s := range (*r)[:min(top, len(*r))] {
			list = append(list, s.session)
		}
	}
	for _, agent := range []string{in.PreferAgent, in.Spec.Affinity} {
		if s := l.hub.sessions[agent]; s != nil && l.sessions[s] != nil {
			list = append(list, s)
		}
	}
	return list
}

// kindOf describes what a session can run at all.
func kindOf(c *task.Candidate, bundles bool) string {
	return strings.Join([]string{strings.Join(c.Capabilities, "+"), strings.Join(c.TaskTypes, "+"),
		strconv.FormatBool(c.EndsProcessTrees), strconv.FormatBool(bundles)}, "|")
}

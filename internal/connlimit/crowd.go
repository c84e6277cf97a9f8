package connlimit

import (
	"container/heap"
	"container/list"
)

// crowd counts connections of strangers: all of them, divided into networks; those of a network, divided into
// addresses; or those of an address.
type crowd struct {
	of          *crowd // that it is a part of; nil: it is all
	name        string
	size        int
	parts       map[string]*crowd
	largest     largest    // the parts too
	at          int        // in of.largest; -1: it is not there yet
	connections *list.List // of an address, the oldest first
}

func newCrowd(of *crowd, name string) *crowd {
	return &crowd{of: of, name: name, parts: map[string]*crowd{}, at: -1, connections: list.New()}
}

// part returns a part, which is to get a connection if it is new.
func (c *crowd) part(name string) *crowd {
	if c.parts[name] == nil {
		c.parts[name] = newCrowd(c, name)
	}
	return c.parts[name]
}

// add counts a connection of an address.
func (c *crowd) add(conn *connection) {
	conn.among, conn.place = c, c.connections.PushBack(conn)
	c.grow(1)
}

// remove ends that a connection of an address counts.
func (c *crowd) remove(conn *connection) {
	c.connections.Remove(conn.place)
	conn.among, conn.place = nil, nil
	c.grow(-1)
}

func (c *crowd) grow(by int) {
	c.size += by
	if c.of == nil {
		return
	}
	switch {
	case c.at < 0:
		heap.Push(&c.of.largest, c)
	case c.size > 0:
		heap.Fix(&c.of.largest, c.at)
	default:
		heap.Remove(&c.of.largest, c.at)
		delete(c.of.parts, c.name)
	}
	c.of.grow(by)
}

// next returns the connection that makes room first: the oldest of the address that has most, in the network that has
// most.
func (c *crowd) next() *connection {
	for len(c.largest) > 0 {
		c = c.largest[0]
	}
	return c.connections.Front().Value.(*connection)
}

// largest is a heap of crowds, the one with most connections first, and of equals the one that has them longer.
type largest []*crowd

func (l largest) Len() int { return len(l) }
func (l largest) Less(i, j int) bool {
	a, b := l[i], l[j]
	return a.size > b.size || a.size == b.size && a.next().number < b.next().number
}
func (l largest) Swap(i, j int) { l[i], l[j] = l[j], l[i]; l[i].at, l[j].at = i, j }

// Push and Pop are for container/heap.
func (l *largest) Push(x any) {
	c := x.(*crowd) //nolint:forcetypeassert // only grow pushes
	c.at = len(*l)
	*l = append(*l, c)
}

func (l *largest) Pop() any {
	last := (*l)[len(*l)-1]
	(*l)[len(*l)-1] = nil
	*l = (*l)[:len(*l)-1]
	return last
}

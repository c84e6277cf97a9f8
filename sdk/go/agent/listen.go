package agent

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"mainstay.dev/sdk/api"
)

// loopbacks are where an instance is asked unless its check has an address.
var loopbacks = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}

// listener is a socket of this host that listens on a port. own: a process of the instance has it.
type listener struct {
	at  netip.Addr
	own bool
}

// whereToAsk are the addresses at which the instance itself listens on a port: an answer of another process, such as
// the instance before it, says nothing about it. Where this cannot be found out, and for a port of its allocation,
// which nobody had before, any answer counts.
func (at *attempt) whereToAsk(port api.ServicePort, address string) ([]netip.Addr, error) {
	candidates := loopbacks
	if address != "" {
		given, err := netip.ParseAddr(address)
		if err != nil || !ofThisHost(given) {
			return nil, errors.New("the check's address is none of this host")
		}
		candidates = []netip.Addr{given}
	}
	number, _ := strconv.Atoi(string(port))
	if a := at.task.Allocation; a != nil {
		for _, given := range a.Ports {
			if given == number {
				return candidates, nil
			}
		}
	}
	listeners, known := at.listeners(number)
	if !known {
		return candidates, nil
	}
	own := slices.ContainsFunc(listeners, func(l listener) bool { return l.own })
	if address == "" {
		for _, l := range listeners {
			if l.own && !l.at.IsUnspecified() && !slices.Contains(candidates, l.at) {
				candidates = append(slices.Clone(candidates), l.at)
			}
		}
	}
	candidates = slices.DeleteFunc(slices.Clone(candidates), func(a netip.Addr) bool { return !answers(listeners, a) })
	switch {
	case len(candidates) > 0:
		return candidates, nil
	case len(listeners) == 0:
		return nil, fmt.Errorf("nothing listens on port %d", number)
	case !own:
		return nil, fmt.Errorf("another process listens on port %d, and none of this instance: name the port in place.ports, "+
			"so that a host has one such instance at a time", number)
	}
	return nil, fmt.Errorf("the instance listens on port %d, but not at the address of its check", number)
}

// answers reports whether the instance gets the connections to an address: the listener of exactly that address does,
// before those of all addresses.
func answers(listeners []listener, to netip.Addr) (own bool) {
	all := netip.IPv6Unspecified()
	if to.Is4() {
		all = netip.IPv4Unspecified()
	}
	for _, at := range []netip.Addr{to, all, netip.IPv6Unspecified()} {
		found := false
		for _, l := range listeners {
			if l.at == at {
				found, own = true, own || l.own
			}
		}
		if found {
			return own
		}
	}
	return false
}

// ofThisHost reports whether an address is one of this host's: a check must not ask others.
func ofThisHost(a netip.Addr) bool {
	if a.IsLoopback() {
		return true
	}
	addresses, _ := net.InterfaceAddrs()
	return slices.ContainsFunc(addresses, func(n net.Addr) bool {
		prefix, err := netip.ParsePrefix(n.String())
		return err == nil && prefix.Addr().Unmap() == a.Unmap()
	})
}

package guard

import (
	"container/list"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// maxClients bounds the clients that are counted; the one that was quiet longest is forgotten first.
const maxClients = 10_000

// limiter bounds the requests of each client.
type limiter struct {
	rate  rate.Limit // 0: no limit
	burst int

	mu      sync.Mutex
	clients map[string]*list.Element
	recent  list.List // of *counted, the newest first
}

type counted struct {
	key     string
	limiter *rate.Limiter
}

func newLimiter(perSecond float64, burst int) *limiter {
	return &limiter{rate: rate.Limit(perSecond), burst: burst, clients: map[string]*list.Element{}}
}

// take counts one request. It returns how long the client must wait before it sends it again; 0: let it in.
func (l *limiter) take(key string, now time.Time) time.Duration {
	if l.rate <= 0 {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	element := l.clients[key]
	if element == nil {
		if len(l.clients) >= maxClients {
			oldest := l.recent.Back()
			delete(l.clients, l.recent.Remove(oldest).(*counted).key)
		}
		element = l.recent.PushFront(&counted{key, rate.NewLimiter(l.rate, l.burst)})
		l.clients[key] = element
	}
	l.recent.MoveToFront(element)
	reservation := element.Value.(*counted).limiter.ReserveN(now, 1)
	wait := reservation.DelayFrom(now)
	if wait > 0 {
		reservation.CancelAt(now) // it is refused, so it does not count
	}
	return wait
}

// addressKey is who a request without a token is counted as: its address, of which an IPv6 host has many.
func addressKey(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		host = remote
	}
	address, err := netip.ParseAddr(host)
	if err != nil {
		return "address " + host
	}
	address = address.Unmap().WithZone("")
	if address.Is6() {
		if prefix, err := address.Prefix(64); err == nil {
			return "address " + prefix.String()
		}
	}
	return "address " + address.String()
}

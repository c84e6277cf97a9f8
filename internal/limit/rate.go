// Package limit bounds what each of many clients may do: how often (Rate), and how much at a time (AtOnce).
package limit

import (
	"container/list"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// maxClients bounds the clients that are counted; the one that was quiet longest is forgotten first.
const maxClients = 10_000

// Rate bounds how often each client does something.
type Rate struct {
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

// NewRate allows each client perSecond requests a second, and burst at once; perSecond 0: any number.
func NewRate(perSecond float64, burst int) *Rate {
	return &Rate{rate: rate.Limit(perSecond), burst: burst, clients: map[string]*list.Element{}}
}

// Take counts a request as n. It returns how long the client must wait before it sends it again; 0: let it in. A
// request that counts more than a burst is let in after a rest, and later requests wait until it is repaid.
func (l *Rate) Take(key string, n int, now time.Time) time.Duration {
	if l.rate <= 0 {
		return 0
	}
	reservation := l.reserve(key, n, now)
	wait := reservation.DelayFrom(now)
	if wait > 0 {
		reservation.CancelAt(now) // it is refused, so it does not count
		return wait
	}
	l.SpendAll(key, n-l.burst, now)
	return 0
}

// Spend counts n, or at most a burst, for work that is done in any case: the client's later requests wait until it is
// repaid. It returns how long the next should wait, so that the client keeps to its rate.
func (l *Rate) Spend(key string, n int, now time.Time) time.Duration {
	return l.reserve(key, n, now).DelayFrom(now)
}

// SpendAll is Spend that also counts what exceeds a burst.
func (l *Rate) SpendAll(key string, n int, now time.Time) {
	for ; n > 0 && l.rate > 0; n -= l.burst {
		l.Spend(key, n, now)
	}
}

func (l *Rate) reserve(key string, n int, now time.Time) *rate.Reservation {
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
	return element.Value.(*counted).limiter.ReserveN(now, min(n, l.burst))
}

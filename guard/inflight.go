package guard

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"mainstay.dev/mainstay/httpapi"
	"mainstay.dev/mainstay/protocol"
	"mainstay.dev/mainstay/ratelimit"
)

// What one client may have under way at a time: a token, an agent, or an address without a token.
const (
	// maxHeld bounds its requests that are held open: waits and streams. Security being off, nobody can be told apart
	// behind an address.
	maxHeld      = 64
	maxHeldLocal = 1024
	// maxBytes bounds the bodies of its requests, in bytes: one of the largest batches and some others. An agent's are
	// polls, and strangers only sign in.
	maxBytes         = 48 << 20
	maxAgentBytes    = 16 << 20
	maxStrangerBytes = 64 << 10
	// maxAllBytes bounds the bodies of all clients that are no agents, and those of all agents.
	maxAllBytes = 128 << 20
	// maxAnswers bounds what reading and writing the large answers to one client's requests takes, and maxAllAnswers
	// that of all clients together: an answer stays in memory until its client has read it.
	maxAnswers    = 32 << 20
	maxAllAnswers = 128 << 20
)

// inFlight is what is under way.
type inFlight struct {
	mu      sync.Mutex
	clients map[string]*flight
	all     map[bool]int64 // bytes, by whether they are agents'
	answers int64          // bytes of all clients' answers
}

// flight is what one client has under way.
type flight struct {
	requests, held int
	bytes, answers int64
}

func newInFlight() *inFlight { return &inFlight{clients: map[string]*flight{}, all: map[bool]int64{}} }

// begin counts a request of a client until end is called; or it returns the problem to answer with. In the context that
// it returns, what the answer takes is counted too.
func (f *inFlight) begin(
	ctx context.Context, client string, r *http.Request, route httpapi.Route, mostHeld int, mostBytes int64,
) (_ context.Context, end func(), err error) {
	held := route.Held || r.URL.Query().Has("wait")
	size := bodySize(r, route)
	agents := route.Policy.IsSession()
	if route.Policy.IsJoin() {
		client = "joins of " + client // all agents of a cluster may come at once, and must not keep others out
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.clients[client]
	if c == nil {
		c = &flight{}
	}
	switch {
	case c.requests >= 4*mostHeld && !route.Policy.IsJoin(): // who reads slowly keeps answers in memory
		return ctx, nil, httpapi.RetryAfter(time.Second, "too many requests at the same time: read the answers to those before")
	case held && c.held >= mostHeld:
		return ctx, nil, httpapi.RetryAfter(time.Second, "too many requests that wait or stream at the same time: at most "+
			strconv.Itoa(mostHeld)+" of one token; watch events instead of waiting for each task")
	case size > 0 && c.bytes > 0 && c.bytes+size > mostBytes:
		return ctx, nil, httpapi.RetryAfter(time.Second, "too many bytes of request bodies at the same time: at most "+
			strconv.FormatInt(mostBytes>>10, 10)+" KiB of one client; send the next after the answer to this one")
	case size > 0 && f.all[agents] > 0 && f.all[agents]+size > maxAllBytes:
		return ctx, nil, httpapi.RetryAfter(time.Second,
			"the server has too many bytes of request bodies from all clients at the same time: try again")
	}
	f.clients[client] = c
	c.requests++
	c.bytes += size
	f.all[agents] += size
	if held {
		c.held++
	}
	var answer int64
	reserve := func(bytes int64) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		more := bytes - answer
		if more <= 0 {
			return nil
		}
		full := c.answers > 0 && c.answers+more > maxAnswers || f.answers > 0 && f.answers+more > maxAllAnswers
		if full && !mutates(r.Method) { // what was changed is told
			return httpapi.RetryAfter(time.Second, "too many large answers at the same time: read those before")
		}
		answer, c.answers, f.answers = bytes, c.answers+more, f.answers+more
		return nil
	}
	return httpapi.WithReserve(ctx, reserve), sync.OnceFunc(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		c.requests--
		c.bytes -= size
		c.answers -= answer
		f.answers -= answer
		f.all[agents] -= size
		if held {
			c.held--
		}
		if c.requests == 0 {
			delete(f.clients, client)
		}
	}), nil
}

// bodySize is how many bytes of a request's body may be read; of one of unknown length, as many as the route takes.
func bodySize(r *http.Request, route httpapi.Route) int64 {
	if r.ContentLength < 0 {
		return route.MaxBody
	}
	return min(r.ContentLength, route.MaxBody)
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

const (
	// refusedRate and refusedBurst bound the refusals that one address gets at once, a second and in a burst.
	refusedRate  = 20.0
	refusedBurst = 200
	// slowness is how long each further one takes.
	slowness = time.Second
	// maxSlowed bounds the refusals that are held back at a time, of all addresses.
	maxSlowed = 1000
)

// slower holds back the refusals of an address that sends on although it gets 429. Answered at once, such a flood would
// take more of the processor than the requests that are let in.
type slower struct {
	refused *ratelimit.Limiter
	held    chan struct{}
}

func newSlower() slower {
	return slower{refused: ratelimit.New(refusedRate, refusedBurst), held: make(chan struct{}, maxSlowed)}
}

// refuse returns after slowness if err is one 429 too many.
func (s slower) refuse(r *http.Request, err error, now time.Time) {
	if code, _ := httpapi.Code(err); code != protocol.CodeRateLimited {
		return
	}
	if s.refused.Take(addressKey(httpapi.ClientOf(r).Address), 1, now) == 0 {
		return
	}
	select {
	case s.held <- struct{}{}:
		defer func() { <-s.held }()
	default:
		return
	}
	select {
	case <-time.After(slowness):
	case <-r.Context().Done():
	}
}

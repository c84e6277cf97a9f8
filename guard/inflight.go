package guard

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"mainstay.dev/mainstay/connlimit"
	"mainstay.dev/mainstay/httpapi"
	"mainstay.dev/mainstay/limit"
	"mainstay.dev/mainstay/protocol"
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
	// maxAllBytes bounds the bodies of all clients that are no agents, and those of all agents; maxGroupBytes those of
	// one tenant's tokens, of one cluster's agents, and of registrations. What smallBody leaves of each counts.
	maxAllBytes   = 128 << 20
	maxGroupBytes = maxAllBytes / 2
	// smallBody is how much of a body is read even while others have taken all that may be read: most are no larger, as
	// are the polls of agents, whose number is bounded.
	smallBody = 16 << 10
	// maxAnswers bounds what reading and writing the large answers to one client's requests takes, maxGroupAnswers that
	// of one tenant's, and maxAllAnswers that of all together: an answer stays in memory until its client has read it.
	maxAnswers      = 32 << 20
	maxGroupAnswers = maxAllAnswers / 2
	maxAllAnswers   = 128 << 20
)

// inFlight is what is under way.
type inFlight struct {
	mu      sync.Mutex
	clients map[string]*flight
	bodies  map[string]int64 // bytes beyond smallBody that were read: of each group, and of all agents and all others
	answers map[string]int64 // bytes of the answers to each group's clients, and of all
}

// flight is what one client has under way.
type flight struct {
	requests, held int
	bytes, answers int64
}

func newInFlight() *inFlight {
	return &inFlight{clients: map[string]*flight{}, bodies: map[string]int64{}, answers: map[string]int64{}}
}

// begin counts a request of a client until end is called; or it returns the problem to answer with. A body counts as it
// is read: one that is announced and does not come takes nothing. group is the tenant of a token, or the cluster of an
// agent. In the context that it returns, what the answer takes is counted too.
func (f *inFlight) begin(
	ctx context.Context, client, group string, r *http.Request, route httpapi.Route, mostHeld int, mostBytes int64,
) (_ context.Context, end func(), err error) {
	held := route.Held || r.URL.Query().Has("wait")
	body := &body{ReadCloser: r.Body, flights: f, mostBytes: mostBytes, all: "tokens", group: "tenant " + group}
	if route.Policy.IsSession() {
		body.all, body.group = "agents", "cluster "+group
	}
	if route.Policy.IsJoin() {
		// All agents of a cluster may come at once, and must not keep others out.
		client, body.group = "joins of "+client, "joins"
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.clients[client]
	if c == nil {
		c = &flight{}
	}
	switch {
	case c.requests >= 4*mostHeld && !route.Policy.IsJoin(): // who reads slowly keeps answers in memory
		return ctx, nil, httpapi.RetryAfter(time.Second,
			"too many requests at the same time: read the answers to those before")
	case held && c.held >= mostHeld:
		return ctx, nil, httpapi.RetryAfter(time.Second, "too many requests that wait or stream at the same time: at most "+
			strconv.Itoa(mostHeld)+" of one token; watch events instead of waiting for each task")
	}
	body.client = c
	if err := body.refuse(min(r.ContentLength, route.MaxBody)); err != nil { // it need not come
		return ctx, nil, err
	}
	if r.ContentLength != 0 && r.Body != nil {
		r.Body = body
	}
	f.clients[client] = c
	c.requests++
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
		beyond := func(others, most int64) bool { return others > 0 && others+more > most }
		full := beyond(c.answers, maxAnswers) || beyond(f.answers[all], maxAllAnswers) ||
			group != "" && beyond(f.answers[body.group], maxGroupAnswers)
		if full && !mutates(r.Method) { // what was changed is told
			return httpapi.RetryAfter(time.Second, "too many large answers at the same time: read those before")
		}
		answer, c.answers = bytes, c.answers+more
		f.countAnswer(body.group, more)
		return nil
	}
	return httpapi.WithReserve(ctx, reserve), sync.OnceFunc(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		c.requests--
		c.answers -= answer
		f.countAnswer(body.group, -answer)
		body.count(-body.read)
		if held {
			c.held--
		}
		if c.requests == 0 {
			delete(f.clients, client)
		}
	}), nil
}

// all is the group of all clients.
const all = ""

func (f *inFlight) countAnswer(group string, more int64) {
	for _, key := range []string{group, all} {
		if f.answers[key] += more; f.answers[key] == 0 {
			delete(f.answers, key)
		}
	}
}

// body is that of a request. What was read of it counts until the request has ended.
type body struct {
	io.ReadCloser
	flights    *inFlight
	client     *flight
	all, group string // the bodies with which it shares
	mostBytes  int64  // of its client
	read       int64
}

// Read implements io.Reader. It fails with the problem to answer with.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.flights.mu.Lock()
	defer b.flights.mu.Unlock()
	if refused := b.refuse(int64(n)); refused != nil {
		return 0, refused
	}
	b.count(int64(n))
	return n, err
}

// size is how many bytes of the body were read.
func (b *body) size() int64 {
	b.flights.mu.Lock()
	defer b.flights.mu.Unlock()
	return b.read
}

// beyond is how many of so many bytes of a body count among those of others.
func beyond(bytes int64) int64 { return max(0, bytes-smallBody) }

func (b *body) count(more int64) {
	shared := beyond(b.read+more) - beyond(b.read)
	b.read += more
	b.client.bytes += more
	for _, key := range []string{b.all, b.group} {
		if b.flights.bodies[key] += shared; b.flights.bodies[key] == 0 {
			delete(b.flights.bodies, key)
		}
	}
}

// refuse is the problem where so many bytes more of the body are too many. The only one of a client, of a group, and of
// all is never too large.
func (b *body) refuse(more int64) error {
	own := beyond(b.read)
	shared := beyond(b.read+more) - own
	full := func(key string, most int64) bool {
		others := b.flights.bodies[key] - own
		return shared > 0 && others > 0 && others+own+shared > most
	}
	switch others := b.client.bytes - b.read; {
	case more > 0 && others > 0 && others+b.read+more > b.mostBytes:
		return httpapi.RetryAfter(time.Second, "too many bytes of request bodies at the same time: at most "+
			strconv.FormatInt(b.mostBytes>>10, 10)+" KiB of one client; send the next after the answer to this one")
	case full(b.group, maxGroupBytes), full(b.all, maxAllBytes):
		return httpapi.RetryAfter(time.Second,
			"the server has too many bytes of request bodies at the same time, of one tenant or cluster or of all: try again")
	}
	return nil
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
	refused *limit.Rate
	held    chan struct{}
}

func newSlower() slower {
	return slower{refused: limit.NewRate(refusedRate, refusedBurst), held: make(chan struct{}, maxSlowed)}
}

// refuse returns after slowness if err is one 429 too many.
func (s slower) refuse(r *http.Request, err error, now time.Time) {
	if code, _ := httpapi.Code(err); code != protocol.CodeRateLimited {
		return
	}
	if s.refused.Take(connlimit.AddressKey(httpapi.ClientOf(r).Address), 1, now) == 0 {
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

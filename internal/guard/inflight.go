package guard

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"mainstay.dev/mainstay/internal/connlimit"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/limit"
	"mainstay.dev/sdk/protocol"
)

// What one client may have under way at a time: a token, an agent, or an address without a token.
const (
	// maxHeld bounds its requests that are held open: waits and streams. maxHeldLocal does so with security off, when
	// all clients behind an address look the same.
	maxHeld      = 64
	maxHeldLocal = 1024
	// maxBytes bounds the bodies of its requests, in bytes: one of the largest batches and some others. An agent's are
	// polls, and strangers only sign in.
	maxBytes         = 48 << 20
	maxAgentBytes    = 16 << 20
	maxStrangerBytes = 64 << 10
	// maxAllBytes bounds the bodies of all clients but agents, and of all agents; maxGroupBytes those of one tenant's
	// tokens, of one cluster's agents, and of registrations. Only the part of a body beyond smallBody counts.
	maxAllBytes   = 128 << 20
	maxGroupBytes = maxAllBytes / 2
	// smallBody is how much of a body is read even while others have taken all that may be read: most are no larger, as
	// are the polls of agents, whose number is bounded.
	smallBody = 16 << 10
	// maxAnswers bounds the memory for large answers to one client's requests, maxGroupAnswers to one tenant's, and
	// maxAllAnswers to all: an answer stays in memory until its client has read it.
	maxAnswers      = 32 << 20
	maxGroupAnswers = maxAllAnswers / 2
	maxAllAnswers   = 128 << 20
)

// inFlight counts the work under way.
type inFlight struct {
	requests, held           limit.AtOnce            // by client
	bytes                    map[int64]*limit.AtOnce // of bodies, by client: by how many it may have
	groupBytes, allBytes     limit.AtOnce            // of bodies, beyond smallBody
	answers                  limit.AtOnce            // bytes, by client
	groupAnswers, allAnswers limit.AtOnce
}

func newInFlight(mostHeld int64) *inFlight {
	f := &inFlight{requests: limit.AtOnce{Most: 4 * mostHeld}, held: limit.AtOnce{Most: mostHeld},
		bytes: map[int64]*limit.AtOnce{}, groupBytes: limit.AtOnce{Most: maxGroupBytes},
		allBytes: limit.AtOnce{Most: maxAllBytes}, answers: limit.AtOnce{Most: maxAnswers},
		groupAnswers: limit.AtOnce{Most: maxGroupAnswers}, allAnswers: limit.AtOnce{Most: maxAllAnswers}}
	for _, most := range []int64{maxBytes, maxAgentBytes, maxStrangerBytes} {
		f.bytes[most] = &limit.AtOnce{Most: most}
	}
	return f
}

// begin counts a request of a client until end is called; or it returns the problem to answer with. A body counts as it
// is read: one that is announced and does not come takes nothing. group is the tenant of a token, or the cluster of an
// agent. The context that it returns counts the answer too.
func (f *inFlight) begin(
	ctx context.Context, client, group string, r *http.Request, route httpapi.Route, mostBytes int64,
) (_ context.Context, end func(), err error) {
	kind, shared := "tokens", "tenant "+group
	if route.Policy.IsSession() {
		kind, shared = "agents", "cluster "+group
	}
	if route.Policy.IsJoin() {
		// All agents of a cluster may come at once, and must not keep others out.
		client, shared = "joins of "+client, "joins"
	}
	requests := &limit.Hold{Shares: []limit.Share{{Of: &f.requests, Key: client}}}
	held := &limit.Hold{Shares: []limit.Share{{Of: &f.held, Key: client}}}
	body := &body{ReadCloser: r.Body, own: limit.Hold{Shares: []limit.Share{{Of: f.bytes[mostBytes], Key: client}}},
		shared: limit.Hold{Shares: []limit.Share{{Of: &f.groupBytes, Key: shared}, {Of: &f.allBytes, Key: kind}}}}
	answer := &limit.Hold{Shares: []limit.Share{{Of: &f.answers, Key: client}, {Of: &f.allAnswers}}}
	if group != "" {
		answer.Shares = append(answer.Shares, limit.Share{Of: &f.groupAnswers, Key: shared})
	}
	end = func() {
		body.release()
		for _, h := range []*limit.Hold{requests, held, answer} {
			h.Release()
		}
	}
	switch {
	case !route.Policy.IsJoin() && !requests.Grow(1): // who reads slowly keeps answers in memory
		err = httpapi.RetryAfter(time.Second, "too many requests at the same time: read the answers to those before")
	case (route.Held || r.URL.Query().Has("wait")) && !held.Grow(1):
		err = httpapi.RetryAfter(time.Second, "too many requests that wait or stream at the same time: at most "+
			strconv.FormatInt(f.held.Most, 10)+" of one token; watch events instead of waiting for each task")
	default:
		err = body.count(min(r.ContentLength, route.MaxBody))
		body.release() // it need not come
	}
	if err != nil {
		end()
		return ctx, nil, err
	}
	if r.ContentLength != 0 && r.Body != nil {
		r.Body = body
	}
	reserve := func(bytes int64) error {
		if !answer.Grow(bytes) && !mutates(r.Method) { // a change is done, so its answer is sent
			return httpapi.RetryAfter(time.Second, "too many large answers at the same time: read those before")
		}
		return nil
	}
	return httpapi.WithReserve(ctx, reserve), end, nil
}

// body is a request's body. The bytes read from it count until the request has ended.
type body struct {
	io.ReadCloser
	own    limit.Hold // among those of its client
	shared limit.Hold // among those of its group and of all, beyond smallBody
	read   atomic.Int64
}

// Read implements io.Reader. It fails with the problem to answer with.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if refused := b.count(b.read.Load() + int64(n)); refused != nil {
		return 0, refused
	}
	b.read.Add(int64(n))
	return n, err
}

// count counts the body as so large, or returns the problem where that is too much.
func (b *body) count(size int64) error {
	if !b.own.Grow(size) {
		return httpapi.RetryAfter(time.Second, "too many bytes of request bodies at the same time: at most "+
			strconv.FormatInt(b.own.Shares[0].Of.Most>>10, 10)+" KiB of one client; send the next after the answer to this one")
	}
	if !b.shared.Grow(size - smallBody) {
		return httpapi.RetryAfter(time.Second,
			"the server has too many bytes of request bodies at the same time, of one tenant or cluster or of all: try again")
	}
	return nil
}

// release forgets what was counted.
func (b *body) release() {
	b.read.Store(0)
	b.own.Release()
	b.shared.Release()
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

// slower delays the refusals of an address that sends on although it gets 429. Immediate answers to a flood would take
// more of the processor than the admitted requests.
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

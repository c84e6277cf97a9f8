package guard

import (
	"net/http"
	"time"

	"mainstay.dev/mainstay/httpapi"
	"mainstay.dev/mainstay/protocol"
	"mainstay.dev/mainstay/ratelimit"
)

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

package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

const (
	defaultPatience = 30 * time.Second
	// firstPause is the pause before the first repetition, on average; it doubles each time, up to maxPause.
	firstPause = 500 * time.Millisecond
	maxPause   = 4 * time.Second
)

// send sends a request, and repeats it while that is safe and may help.
func (c *Client) send(ctx context.Context, r *request) ([]byte, error) {
	body := r.text
	if r.body != nil {
		var err error
		if body, err = json.Marshal(r.body); err != nil {
			return nil, fmt.Errorf("encode the request: %w", err)
		}
	}
	for pause, left := firstPause, c.patience; ; pause = min(2*pause, maxPause) {
		data, err := c.once(ctx, r, body)
		if left < c.patience && r.removes && IsNotFound(err) {
			return nil, nil // an earlier try did it, and its answer was lost
		}
		if err == nil || left <= 0 || !r.repeatable() {
			return data, err
		}
		again, after := transient(err)
		wait := max(min(left, pause/2+rand.N(pause)), after)
		deadline, limited := ctx.Deadline()
		if !again || wait > left || limited && time.Until(deadline) <= wait || ctx.Err() != nil {
			return nil, err
		}
		if left -= wait; c.away != nil {
			c.away(err)
		}
		if err := c.pause(ctx, wait); err != nil {
			return nil, err
		}
	}
}

// repeatable reports whether a request has the same effect once and twice. A change of one revision has not: the first
// makes another revision.
func (r *request) repeatable() bool {
	switch r.method {
	case http.MethodGet, http.MethodHead:
		return true
	case http.MethodPut, http.MethodDelete:
		return r.header.Get("If-Match") == ""
	}
	return r.keyed
}

// transient reports whether a repetition may help, and the least time that the server wants to have passed.
func transient(err error) (again bool, after time.Duration) {
	var away *UnreachableError
	if errors.As(err, &away) {
		return !away.lasting, 0
	}
	var refused *Error
	if !errors.As(err, &refused) {
		return false, 0
	}
	switch refused.Status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true, refused.RetryAfter
	}
	return false, 0
}

// retryAfter reads the header, which holds seconds or a date. 0: it says nothing.
func retryAfter(header string, now time.Time) time.Duration {
	if seconds, err := strconv.Atoi(header); err == nil {
		return time.Duration(max(0, seconds)) * time.Second
	}
	if at, err := http.ParseTime(header); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}

// sleep waits for d; it answers an error when ctx ends before.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

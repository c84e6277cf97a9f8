package activities

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.temporal.io/sdk/temporal"
)

const (
	// lookTurn is how long a look at required services waits until one of the same tenant is over, before it is tried
	// again after lookLater.
	lookTurn, lookLater = time.Second, 10 * time.Second
	// lookFresh is how long what a look found answers those who ask for the same.
	lookFresh = time.Second
	// lookRest is how many times as long as it took a tenant's look is followed by none.
	lookRest = 3
)

// looks has the jobs and runs of a tenant look for required services one after another, and rest in between: each look
// may ask many jobs, and any number of runs may wait for services.
type looks struct {
	mu      sync.Mutex
	tenants map[string]*tenantLooks
}

type tenantLooks struct {
	turn chan struct{} // holds one element while a look is under way, and in the rest after it

	mu    sync.Mutex
	asked string    // for what the newest look was
	unmet []string  // what it found
	until time.Time // it is news until then
}

// unmet are those of a tenant's services that are missing, as read says or has said just now.
func (l *looks) unmet(
	ctx context.Context, tenant string, services []string, read func() ([]string, error),
) ([]string, error) {
	l.mu.Lock()
	t := l.tenants[tenant]
	if t == nil {
		t = &tenantLooks{turn: make(chan struct{}, 1)}
		if l.tenants == nil {
			l.tenants = map[string]*tenantLooks{}
		}
		l.tenants[tenant] = t
	}
	l.mu.Unlock()
	asked := strings.Join(services, " ")
	if unmet, fresh := t.known(asked); fresh {
		return unmet, nil
	}
	patience := time.NewTimer(lookTurn)
	defer patience.Stop()
	select {
	case t.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-patience.C:
		return nil, temporal.NewApplicationErrorWithOptions("another job or run of the tenant looks for its services", "Looking",
			temporal.ApplicationErrorOptions{NextRetryDelay: lookLater, Category: temporal.ApplicationErrorCategoryBenign})
	}
	if unmet, fresh := t.known(asked); fresh {
		<-t.turn
		return unmet, nil
	}
	began := time.Now()
	unmet, err := read()
	if err != nil {
		err = fmt.Errorf("look for required services: %w", err)
	}
	rest := lookRest * time.Since(began)
	if err == nil {
		t.mu.Lock()
		t.asked, t.unmet, t.until = asked, unmet, time.Now().Add(max(rest, lookFresh))
		t.mu.Unlock()
	}
	time.AfterFunc(rest, func() { <-t.turn })
	return unmet, err
}

func (t *tenantLooks) known(asked string) (unmet []string, fresh bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.unmet, t.asked == asked && time.Now().Before(t.until)
}

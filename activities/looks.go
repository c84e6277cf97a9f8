package activities

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
)

const (
	// lookFresh is how long the result of a look at required services answers the same question again.
	lookFresh = time.Second
	// lookRest is how long a tenant's look is followed by none, as a multiple of the time that it took.
	lookRest = 3
)

// looks makes the jobs and runs of a tenant look for required services one after another, and rest in between: each
// look may ask many jobs, and any number of runs may wait for services.
type looks struct {
	turns turns
	mu    sync.Mutex
	found map[string]found // by tenant: by its newest look
}

type found struct {
	asked string // for which services
	unmet []string
	until time.Time // it is news until then
}

// unmet are the tenant's services that are missing, as found by read now or a moment ago.
func (l *looks) unmet(
	ctx context.Context, tenant string, services []string, read func() ([]string, error),
) ([]string, error) {
	asked := strings.Join(services, " ")
	if unmet, fresh := l.known(tenant, asked); fresh {
		return unmet, nil
	}
	turn, err := l.turns.take(ctx, tenant)
	if err != nil {
		return nil, err
	}
	if unmet, fresh := l.known(tenant, asked); fresh {
		turn.done()
		return unmet, nil
	}
	began := time.Now()
	unmet, err := read()
	rest := lookRest * time.Since(began)
	time.AfterFunc(rest, turn.done)
	if err != nil {
		return nil, fmt.Errorf("look for required services: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.found == nil {
		l.found = map[string]found{}
	}
	l.found[tenant] = found{asked, unmet, time.Now().Add(max(rest, lookFresh))}
	return unmet, nil
}

func (l *looks) known(tenant, asked string) (unmet []string, fresh bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.found[tenant]
	return f.unmet, f.asked == asked && time.Now().Before(f.until)
}

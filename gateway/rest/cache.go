package rest

import (
	"sync"
	"time"
)

// cache remembers things by name for a short time.
type cache[T any] struct {
	fresh   time.Duration // for how long
	mu      sync.Mutex
	entries map[string]cached[T]
}

type cached[T any] struct {
	value   T
	expires time.Time
}

func (c *cache[T]) get(name string) (T, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[name]
	return e.value, time.Now().Before(e.expires)
}

// put remembers a thing, unless another request has just done so, and forgets those whose time is over.
func (c *cache[T]) put(name string, value T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for other, e := range c.entries {
		if now.After(e.expires) {
			delete(c.entries, other)
		}
	}
	if c.entries == nil {
		c.entries = map[string]cached[T]{}
	}
	if _, known := c.entries[name]; !known {
		c.entries[name] = cached[T]{value, now.Add(c.fresh)}
	}
}

func (c *cache[T]) forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.entries, name)
}

package cluster

import (
	"time"

	"mainstay.dev/mainstay/internal/task"
)

// Contest records that more than one living process uses an agent id. Each registration of one takes the id from the
// other, and its supervisor then starts the other again.
type Contest struct {
	Taken int       // how often one process took the id from another that was connected
	Since time.Time // of the first time
	Last  time.Time // of the newest
}

// Bounds of a contest.
const (
	// contestHold is how long a process keeps the id after the first time that it was taken; each further time doubles
	// that, up to contestHoldLimit.
	contestHold      = 10 * time.Second
	contestHoldLimit = 5 * time.Minute
	// contestKept is how long a contest is remembered after the newest time.
	contestKept = 2 * contestHoldLimit
)

// Take counts that a process took the id from another that was connected.
func (c *Contest) Take(now time.Time) {
	if c.Over(now) {
		*c = Contest{Since: now}
	}
	c.Taken++
	c.Last = now
}

// Over reports whether the id was not taken for so long that the next time counts as the first.
func (c *Contest) Over(now time.Time) bool { return c.Taken == 0 || now.Sub(c.Last) > contestKept }

// Wait is how long a new process must leave the id to another one that is connected. The first time it takes the id at
// once, since the other may be a remnant whose host is gone.
func (c *Contest) Wait(now time.Time) time.Duration {
	if c.Over(now) {
		return 0
	}
	return max(0, c.Last.Add(task.Doubled(contestHold, c.Taken-1, contestHoldLimit)).Sub(now))
}

// Rival is a process that another one with its agent id keeps from being the agent.
type Rival struct {
	AgentID string
	Host    string
	PID     int
	Address string
	Since   time.Time // when the contest began
}

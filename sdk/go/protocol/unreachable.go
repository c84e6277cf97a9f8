package protocol

import (
	"net"
	"syscall"
	"time"
)

// KeepAlive has the kernel probe an idle connection each second. An end whose host, cable or route is gone shows after
// two to four seconds, at both ends; while all is well, no program does any work for it.
var KeepAlive = net.KeepAliveConfig{Enable: true, Idle: time.Second, Interval: time.Second, Count: 3}

// unreachable is how long data or probes may stay without an answer until the kernel gives the connection up. The
// answer to a poll that is held for 2 s may be the first that is lost, so a dead end shows 4 s after the last poll at
// the latest.
const unreachable = 2 * time.Second

// NoticeUnreachable makes the kernel give a connection up when data sent on it stays unacknowledged. It has the form of
// net.Dialer.Control.
func NoticeUnreachable(_, _ string, c syscall.RawConn) error {
	var failed error
	if err := c.Control(func(fd uintptr) { failed = setUserTimeout(fd, unreachable) }); err != nil {
		return err
	}
	return failed
}

package devserver

import (
	"fmt"
	"net"
	"strconv"
)

// PortInUseError says that the port of Temporal's frontend is taken, and how to choose another.
type PortInUseError struct {
	Address string // host:port
	Err     error
}

func (e *PortInUseError) Error() string {
	return fmt.Sprintf("Temporal cannot listen on %s: it is in use by another process. "+
		"Stop that process, or choose another address with --temporal", e.Address)
}

// Unwrap returns the listener's error.
func (e *PortInUseError) Unwrap() error { return e.Err }

// servicePorts are the ports that only Temporal's own parts use.
type servicePorts struct{ history, matching, worker int }

// choosePorts finds distinct ports, a free one where none is chosen: all are held open until the last is found. Its
// error is a *PortInUseError when the frontend's port is taken.
func choosePorts(o *Options) (ports servicePorts, err error) {
	address := net.JoinHostPort(o.Host, strconv.Itoa(o.Port))
	frontend, err := net.Listen("tcp", address)
	if err != nil {
		return ports, &PortInUseError{Address: address, Err: err}
	}
	defer frontend.Close()
	o.Port = frontend.Addr().(*net.TCPAddr).Port
	for _, port := range []*int{&ports.history, &ports.matching, &ports.worker} {
		l, err := net.Listen("tcp", net.JoinHostPort(internalHost, "0"))
		if err != nil {
			return ports, fmt.Errorf("find a free port on %s: %w", internalHost, err)
		}
		defer l.Close()
		*port = l.Addr().(*net.TCPAddr).Port
	}
	return ports, nil
}

package devserver

import (
	"fmt"
	"net"
	"strconv"
)

// PortInUseError says which port is taken and how to choose another.
type PortInUseError struct {
	What    string // what was to listen there
	Address string // host:port
	Flag    string // the flag of `mainstay dev` that changes it
	Err     error
}

func (e *PortInUseError) Error() string {
	return fmt.Sprintf("%s cannot listen on %s: it is in use by another process. Stop that process, or choose another address with %s", e.What, e.Address, e.Flag)
}

// Unwrap returns the listener's error.
func (e *PortInUseError) Unwrap() error { return e.Err }

// servicePorts are the ports that only Temporal's own parts use.
type servicePorts struct{ frontendHTTP, history, matching, worker int }

// choosePorts fills the ports that are left open and checks the chosen ones. The Web UI would end the whole process if
// its port were taken, so it must be known before anything starts.
func choosePorts(o *Options) (servicePorts, error) {
	if err := CheckPort("Temporal", o.Host, o.Port, "--temporal"); err != nil {
		return servicePorts{}, err
	}
	if o.UIPort > 0 {
		if err := CheckPort("The Web UI", o.UIHost, o.UIPort, "--ui"); err != nil {
			return servicePorts{}, err
		}
	}
	var ports servicePorts
	wanted := []*int{&ports.frontendHTTP, &ports.history, &ports.matching, &ports.worker}
	if o.Port == 0 {
		wanted = append(wanted, &o.Port)
	}
	if o.UIPort < 0 {
		wanted = append(wanted, &o.UIPort)
	}
	return ports, freePorts(o.Host, wanted)
}

// CheckPort reports a *PortInUseError when nothing can listen there. Port 0 is always free.
func CheckPort(what, host string, port int, flag string) error {
	if port == 0 {
		return nil
	}
	address := net.JoinHostPort(host, strconv.Itoa(port))
	l, err := net.Listen("tcp", address)
	if err != nil {
		return &PortInUseError{What: what, Address: address, Flag: flag, Err: err}
	}
	return l.Close()
}

// freePorts finds distinct free ports: all are held open until the last is found.
func freePorts(host string, into []*int) error {
	for _, port := range into {
		l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
		if err != nil {
			return fmt.Errorf("find a free port on %s: %w", host, err)
		}
		defer l.Close()
		*port = l.Addr().(*net.TCPAddr).Port
	}
	return nil
}

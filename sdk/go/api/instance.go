package api

import (
	"cmp"
	"encoding/json"
	"errors"
	"math"
	"net/netip"
	"strconv"
	"time"
)

// InstanceOf says of a task that it is an instance of a job. It travels with each delivery.
type InstanceOf struct {
	Job     string        `json:"job" doc:"The job's full name."`
	Name    string        `json:"name" doc:"Its number, from 0, or the id of its agent."`
	Version int           `json:"version" doc:"Of the job's definition."`
	Kind    string        `json:"kind,omitempty" doc:"The job's type: service, system or sysbatch."`
	Service *ServiceOffer `json:"service,omitempty"`
	Health  *ServiceCheck `json:"health,omitempty" doc:"How its agent checks it."`
	Canary  bool          `json:"canary,omitempty" doc:"It was started before its version was promoted."`
	// StopGrace is how long it has to end when it is stopped; 0: DefaultStopGrace.
	StopGrace Duration `json:"stop_grace,omitempty" least:"0s" doc:"How long it has to end when it is stopped. A command gets SIGTERM, and SIGKILL then. Default 5s."`
	// DisconnectGrace is how long its agent may be out of touch before it counts as lost; 0: not at all.
	DisconnectGrace Duration `json:"disconnect_grace,omitempty" least:"0s" doc:"How long its agent may be out of touch before the instance counts as lost."`
}

// DefaultStopGrace is how long stopped instances, and work that is no command, have to end, and any work when its agent
// stops; DefaultCommandGrace is the same for commands of other tasks. MaxStopGrace bounds the values that people set.
const (
	DefaultStopGrace    = 5 * time.Second
	DefaultCommandGrace = 30 * time.Second
	MaxStopGrace        = 10 * time.Minute
)

// ServiceName is the full name of the service that it offers; empty: none.
func (i *InstanceOf) ServiceName() string {
	if i.Service == nil {
		return ""
	}
	tenant, _ := CutTenant(i.Job)
	return Qualify(tenant, i.Service.Name)
}

// OfEachAgent reports whether the job has an instance on each agent. That of an agent stays while the agent is drained.
func (i *InstanceOf) OfEachAgent() bool {
	return i != nil && (i.Kind == "system" || i.Kind == "sysbatch")
}

// ServiceOffer is how others find an instance.
type ServiceOffer struct {
	Name string      `json:"name" maxLength:"63" pattern:"^[a-z0-9][a-z0-9._-]*$" doc:"The service's name."`
	Port ServicePort `json:"port,omitempty" doc:"The port that it listens on."`
	Tags []string    `json:"tags,omitempty" maxItems:"16" doc:"Words by which some of its instances are found."`
}

// ServiceCheck is how an agent finds out whether an instance on it is well. Exactly one of HTTP, TCP and Command says
// what it tries.
type ServiceCheck struct {
	HTTP           *HTTPCheck `json:"http,omitempty" doc:"GET is answered with a status from 200 to 399."`
	TCP            *TCPCheck  `json:"tcp,omitempty" doc:"A connection is accepted."`
	Command        []string   `json:"command,omitempty" maxItems:"64" doc:"A command exits with 0. Only on agents that run commands."`
	Interval       Duration   `json:"interval,omitempty" least:"100ms" most:"1h" doc:"Between two checks. Default 5s."`
	Timeout        Duration   `json:"timeout,omitempty" least:"100ms" most:"1h" doc:"How long a check may take. Default 2s."`
	HealthyAfter   Duration   `json:"healthy_after,omitempty" least:"0s" most:"1h" doc:"How long checks must pass before a new instance counts as passing. Default 0: from the first on."`
	UnhealthyAfter int        `json:"unhealthy_after,omitempty" minimum:"1" maximum:"100" doc:"How many checks in a row must fail before it counts as failing. Default 3."`
	OnUnhealthy    OnFailing  `json:"on_unhealthy,omitempty" enum:"restart,none" doc:"What becomes of one that counts as failing: its attempt ends as failed, with error_type unhealthy, and it is started again (restart, the default), or nothing (none)."`
}

// HTTPCheck is a GET from the agent's host.
type HTTPCheck struct {
	Port    ServicePort `json:"port"`
	Path    string      `json:"path,omitempty" maxLength:"1024" doc:"Default /."`
	Address string      `json:"address,omitempty" maxLength:"45" doc:"An IP address of the agent's host at which the instance listens. Default: 127.0.0.1 and ::1, and where it is seen to listen."`
}

// TCPCheck is a connection from the agent's host.
type TCPCheck struct {
	Port    ServicePort `json:"port"`
	Address string      `json:"address,omitempty" maxLength:"45" doc:"An IP address of the agent's host at which the instance listens. Default: 127.0.0.1 and ::1, and where it is seen to listen."`
}

// OnFailing says what happens to an instance that counts as failing.
type OnFailing string

// What happens to an instance that counts as failing.
const (
	RestartFailing OnFailing = "restart"
	KeepFailing    OnFailing = "none"
)

// Defaults of a health check.
const (
	DefaultCheckInterval  = 5 * time.Second
	DefaultCheckTimeout   = 2 * time.Second
	DefaultUnhealthyAfter = 3
)

// ErrorTypeUnhealthy is the type of failure of an attempt that its health check ended.
const ErrorTypeUnhealthy = "unhealthy"

// InstanceHealth is how well an instance on an agent is.
type InstanceHealth string

// How well an instance is. Only those that pass are found by default.
const (
	InstanceStarting InstanceHealth = "starting" // its checks have not passed for long enough yet
	InstancePassing  InstanceHealth = "passing"
	InstanceFailing  InstanceHealth = "failing"
)

// CheckedHealth is the health of an instance with what it follows from.
type CheckedHealth struct {
	Health InstanceHealth
	Failed int       // checks that failed in a row
	Passes time.Time // since when checks pass; zero: the last one failed
	// Turns counts how often checks began to fail or to pass again since they first passed. Odd: the last one failed.
	Turns int64
}

// Checked is the health after one more check.
func (c *ServiceCheck) Checked(h CheckedHealth, passed bool, now time.Time) CheckedHealth {
	if passed == h.Passes.IsZero() && (!passed || h.Turns%2 == 1) {
		h.Turns++
	}
	if !passed {
		h.Failed, h.Passes = h.Failed+1, time.Time{}
		if h.Failed >= cmp.Or(c.UnhealthyAfter, DefaultUnhealthyAfter) {
			h.Health = InstanceFailing
		}
		return h
	}
	h.Failed = 0
	if h.Passes.IsZero() {
		h.Passes = now
	}
	if now.Sub(h.Passes) >= c.HealthyAfter.Std() {
		h.Health = InstancePassing
	}
	return h
}

// ServicePort is the number of a port, as text.
type ServicePort string

var errPort = errors.New("must be a port, from 1 to 65535")

// UnmarshalJSON reads a number, also as text.
func (p *ServicePort) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) != nil {
		text = string(data)
	}
	n, err := strconv.ParseFloat(text, 64) // 80.0 is 80, as in other fields
	if err != nil || n != math.Trunc(n) || n < 1 || n > 65535 {
		return errPort
	}
	*p = ServicePort(strconv.Itoa(int(n)))
	return nil
}

var errAddress = errors.New("must be an IP address of the agents' host, like 10.0.0.7, or left out")

func isAddress(text string) bool {
	a, err := netip.ParseAddr(text)
	return text == "" || err == nil && !a.IsUnspecified() && a.Zone() == ""
}

// Validate checks a health check whose ports are right. The error is a *FieldError.
func (c *ServiceCheck) Validate() error {
	kinds := 0
	for _, given := range []bool{c.HTTP != nil, c.TCP != nil, len(c.Command) > 0} {
		if given {
			kinds++
		}
	}
	invalid := func(field string, err error) error { return &FieldError{Field: field, Err: err} }
	switch {
	case kinds != 1:
		return invalid("", errors.New("must have one of http, tcp and command, like {tcp: {port: 8080}}"))
	case c.HTTP != nil && c.HTTP.Port == "":
		return invalid("http.port", errors.New("is missing"))
	case c.TCP != nil && c.TCP.Port == "":
		return invalid("tcp.port", errors.New("is missing"))
	case c.HTTP != nil && c.HTTP.Path != "" && c.HTTP.Path[0] != '/':
		return invalid("http.path", errors.New("must begin with /"))
	case c.HTTP != nil && !isAddress(c.HTTP.Address):
		return invalid("http.address", errAddress)
	case c.TCP != nil && !isAddress(c.TCP.Address):
		return invalid("tcp.address", errAddress)
	}
	return Within("", c)
}

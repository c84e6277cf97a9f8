package api

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestHealthFollowsChecks(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		check  ServiceCheck
		passed []bool // one check a second
		want   InstanceHealth
	}{
		"none yet":                    {ServiceCheck{}, nil, InstanceStarting},
		"the first one passes":        {ServiceCheck{}, []bool{true}, InstancePassing},
		"too few fail":                {ServiceCheck{}, []bool{true, false, false}, InstancePassing},
		"three fail":                  {ServiceCheck{}, []bool{true, false, false, false}, InstanceFailing},
		"one between passes":          {ServiceCheck{}, []bool{true, false, false, true, false}, InstancePassing},
		"it comes back":               {ServiceCheck{}, []bool{false, false, false, true}, InstancePassing},
		"it never was well":           {ServiceCheck{UnhealthyAfter: 2}, []bool{false, false}, InstanceFailing},
		"not for long enough":         {ServiceCheck{HealthyAfter: Duration(2 * time.Second)}, []bool{true, true}, InstanceStarting},
		"for long enough":             {ServiceCheck{HealthyAfter: Duration(2 * time.Second)}, []bool{true, true, true}, InstancePassing},
		"a blip starts the time anew": {ServiceCheck{HealthyAfter: Duration(2 * time.Second)}, []bool{true, false, true, true}, InstanceStarting},
		"again once it was failing":   {ServiceCheck{HealthyAfter: Duration(2 * time.Second), UnhealthyAfter: 1}, []bool{true, true, true, false, true}, InstanceFailing},
		"two good, two bad":           {ServiceCheck{HealthyAfter: Duration(5 * time.Second), UnhealthyAfter: 2}, []bool{true, true, false, false, true, true}, InstanceFailing},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			state := CheckedHealth{Health: InstanceStarting}
			for i, passed := range c.passed {
				state = c.check.Checked(state, passed, start.Add(time.Duration(i)*time.Second))
				require.Equal(t, !passed && slices.Contains(c.passed[:i], true), state.Turns%2 == 1)
			}
			require.Equal(t, c.want, state.Health)
		})
	}
}

func TestPorts(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]ServicePort{`8080`: "8080", `"9000"`: "9000", `0`: "", `70000`: "", `"http"`: "", `-1`: ""} {
		var p ServicePort
		err := json.Unmarshal([]byte(text), &p)
		require.Equal(t, want == "", err != nil, text)
		require.Equal(t, want, p, text)
	}
}

func TestServiceChecks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		check ServiceCheck
		field string
	}{
		"nothing":     {ServiceCheck{}, ""},
		"two things":  {ServiceCheck{TCP: &TCPCheck{Port: "1"}, Command: []string{"true"}}, ""},
		"no port":     {ServiceCheck{HTTP: &HTTPCheck{}}, "http.port"},
		"no TCP port": {ServiceCheck{TCP: &TCPCheck{}}, "tcp.port"},
		"path":        {ServiceCheck{HTTP: &HTTPCheck{Port: "1", Path: "x"}}, "http.path"},
		"interval":    {ServiceCheck{Command: []string{"true"}, Interval: Duration(time.Millisecond)}, "interval"},
		"unhealthy":   {ServiceCheck{Command: []string{"true"}, UnhealthyAfter: 101}, "unhealthy_after"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var wrong *FieldError
			require.ErrorAs(t, c.check.Validate(), &wrong)
			require.Equal(t, c.field, wrong.Field)
		})
	}
	good := ServiceCheck{HTTP: &HTTPCheck{Port: "80", Path: "/x"}, Interval: Duration(time.Second)}
	require.NoError(t, good.Validate())
}

func TestServicesAreOfATenant(t *testing.T) {
	t.Parallel()
	i := InstanceOf{Job: "acme:ranker", Service: &ServiceOffer{Name: "rank"}}
	require.Equal(t, "acme:rank", i.ServiceName())
	i.Service = nil
	require.Empty(t, i.ServiceName())
}

package agent

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/api"
)

func TestChecksOfInstances(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/well":
		case "/moved":
			http.Redirect(w, r, "/nowhere", http.StatusFound)
		case "/slow":
			<-r.Context().Done()
		default:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(server.Close)
	_, number, err := net.SplitHostPort(server.Listener.Addr().String())
	require.NoError(t, err)
	port := api.ServicePort(number)
	six, err := net.Listen("tcp", "[::1]:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = six.Close() })
	onSix := api.ServicePort(strconv.Itoa(six.Addr().(*net.TCPAddr).Port))
	const closed = api.ServicePort("1") // no test is given it, as it could be one that was free a moment ago
	commands := map[string]Handler{ExecType: ExecHandler()}
	for name, c := range map[string]struct {
		check    api.ServiceCheck
		handlers map[string]Handler
		passes   bool
	}{
		"HTTP":              {check: api.ServiceCheck{HTTP: &api.HTTPCheck{Port: port, Path: "/well"}}, passes: true},
		"HTTP, moved":       {check: api.ServiceCheck{HTTP: &api.HTTPCheck{Port: port, Path: "/moved"}}, passes: true},
		"HTTP, not well":    {check: api.ServiceCheck{HTTP: &api.HTTPCheck{Port: port}}},
		"HTTP, too late":    {check: api.ServiceCheck{HTTP: &api.HTTPCheck{Port: port, Path: "/slow"}}},
		"HTTP, nobody":      {check: api.ServiceCheck{HTTP: &api.HTTPCheck{Port: closed}}},
		"TCP":               {check: api.ServiceCheck{TCP: &api.TCPCheck{Port: port}}, passes: true},
		"TCP, at ::1":       {check: api.ServiceCheck{TCP: &api.TCPCheck{Port: onSix}}, passes: true},
		"TCP, there alone":  {check: api.ServiceCheck{TCP: &api.TCPCheck{Port: onSix, Address: "::1"}}, passes: true},
		"TCP, not there":    {check: api.ServiceCheck{TCP: &api.TCPCheck{Port: onSix, Address: "127.0.0.1"}}},
		"TCP, another host": {check: api.ServiceCheck{TCP: &api.TCPCheck{Port: port, Address: "203.0.113.9"}}},
		"HTTP, by address":  {check: api.ServiceCheck{HTTP: &api.HTTPCheck{Port: port, Path: "/well", Address: "127.0.0.1"}}, passes: true},
		"TCP, nobody":       {check: api.ServiceCheck{TCP: &api.TCPCheck{Port: closed}}},
		"command":           {api.ServiceCheck{Command: []string{"true"}}, commands, true},
		"command fails":     {api.ServiceCheck{Command: []string{"false"}}, commands, false},
		"command not found": {api.ServiceCheck{Command: []string{"no-such-command"}}, commands, false},
		"no commands here":  {api.ServiceCheck{Command: []string{"true"}}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := &attempt{run: &run{agent: &Agent{handlers: c.handlers}}, task: &Task{}}
			c.check.Timeout = api.Duration(5 * time.Second)
			if name == "HTTP, too late" {
				c.check.Timeout = api.Duration(50 * time.Millisecond)
			}
			require.Equal(t, c.passes, at.check(t.Context(), &c.check) == nil)
		})
	}
}

// A check may ask any port of its machine, and must not tell what is said there.
func TestCheckDoesNotTellWhatIsAnswered(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "HTTP/1.1 token=abc123 OK\r\n\r\n")
			_ = conn.Close()
		}
	}()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	require.ErrorIs(t, checkHTTP(t.Context(), "127.0.0.1:"+port, ""), errNoHTTP)
}

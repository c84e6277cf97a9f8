package browser

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// wire stands between the browser and a control plane, and can be cut.
type wire struct {
	url string

	mu   sync.Mutex
	down bool
	open map[net.Conn]bool
}

func newWire(t testing.TB, to string) *wire {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	w := &wire{url: "http://" + listener.Addr().String(), open: map[net.Conn]bool{}}
	t.Cleanup(func() { _ = listener.Close(); w.cut(true) })
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			go w.join(near, strings.TrimPrefix(to, "http://"))
		}
	}()
	return w
}

func (w *wire) join(near net.Conn, to string) {
	defer func() { _ = near.Close() }()
	far, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer func() { _ = far.Close() }()
	w.mu.Lock()
	w.open[near], w.open[far] = true, true
	down := w.down
	w.mu.Unlock()
	if down {
		return
	}
	go func() { _, _ = io.Copy(far, near); _ = far.Close() }()
	_, _ = io.Copy(near, far)
	w.mu.Lock()
	delete(w.open, near)
	delete(w.open, far)
	w.mu.Unlock()
}

// cut closes all connections and every new one, or lets them through again.
func (w *wire) cut(down bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = down
	for c := range w.open {
		if down {
			_ = c.Close()
		}
	}
}

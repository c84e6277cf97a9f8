package guard

import (
	"crypto/rand"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/sdk/api"
)

func TestAFloodIsAnsweredSlowly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShelf()
		token, _ := s.add(1, access.Record{Kind: api.TokenAPI, Role: api.RoleViewer})
		g := New(Options{Tokens: s.read, Rate: 1, Burst: 5})
		ask := func() time.Duration {
			begun := time.Now()
			_, finished, _ := g.Admit(request(http.MethodGet, token), httpapi.Route{Policy: access.View}, nil)
			if finished != nil {
				finished(http.StatusOK)
			}
			return time.Since(begun)
		}
		for range 5 + refusedBurst {
			require.Zero(t, ask())
		}
		require.Equal(t, slowness, ask())
		<-time.After(time.Minute)
		require.Zero(t, ask(), "it waited, and is let in")
	})
}

func TestALargeBodyCountsAsManyRequests(t *testing.T) {
	t.Parallel()
	s := newShelf()
	token, _ := s.add(1, access.Record{Kind: api.TokenAPI, Role: api.RoleOperator})
	g := s.gate(Options{Rate: 0.001, Burst: 10})
	send := func(bytes int64) error {
		r := request(http.MethodPost, token)
		r.ContentLength = bytes
		_, finished, err := g.Admit(r, httpapi.Route{Policy: access.Operate, MaxBody: 32 << 20}, nil)
		if finished != nil {
			finished(http.StatusOK)
		}
		return err
	}
	require.NoError(t, send(8*bodyPart))
	require.Error(t, send(bodyPart), "one request is left, and this counts as two")
	require.NoError(t, send(1000))
	require.Error(t, send(0))

	for name, known := range map[string]bool{"known": true, "unknown": false} {
		busy := s.gate(Options{Rate: DefaultRate, Burst: DefaultBurst})
		read, at := int64(0), time.Now()
		busy.now = func() time.Time { return at }
		for range 120 {
			r := request(http.MethodPost, token)
			r.Body, r.ContentLength = io.NopCloser(io.LimitReader(rand.Reader, 2<<20)), -1
			if known {
				r.ContentLength = 2 << 20
			}
			at = at.Add(time.Second / 2)
			_, finished, err := busy.Admit(r, httpapi.Route{Policy: access.Operate, MaxBody: 32 << 20}, nil)
			if err != nil {
				continue
			}
			n, err := io.Copy(io.Discard, r.Body)
			require.NoError(t, err)
			read += n
			finished(http.StatusBadRequest)
		}
		require.InDelta(t, 60*DefaultRate*bodyPart, read, 20<<20, "3 MB a second are read for one token, %s", name)
	}
	small := request(http.MethodPost, token)
	small.ContentLength = -1
	g = s.gate(Options{Rate: 0.001, Burst: 2})
	_, _, err := g.Admit(small, httpapi.Route{Policy: access.Operate, MaxBody: 32 << 20}, nil)
	require.NoError(t, err)
	_, _, err = g.Admit(small, httpapi.Route{Policy: access.Operate, MaxBody: 32 << 20}, nil)
	require.NoError(t, err, "its length is unknown, not large")
}

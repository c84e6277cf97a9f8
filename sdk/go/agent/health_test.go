package agent_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/agent/agenttest"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

func TestOwnHealthIsToldSoon(t *testing.T) {
	t.Parallel()
	hub := agenttest.NewHub(t, agenttest.Options{HeartbeatInterval: time.Minute})
	b := start(t, hub, nil, map[string]agent.Handler{"gate": newGate().handle})
	first := hub.WaitPoll("first", func(protocol.Poll) bool { return true })
	require.Nil(t, first.Health, "an agent that says nothing has no opinion")
	for _, c := range []struct {
		report func()
		health float64
		note   string
	}{
		{func() { b.agent.ReportLevel(api.HealthDegraded, "disk errors") }, 0.75, "disk errors"},
		{func() { b.agent.ReportHealth(-3, strings.Repeat("é", 150)) }, 0, strings.Repeat("é", 100)},
		{func() { b.agent.SetHealth(1) }, 1, ""},
	} {
		told := time.Now()
		c.report()
		hub.WaitPoll("with its opinion", func(p protocol.Poll) bool {
			return p.Health != nil && *p.Health == c.health &&
				p.HealthNote == c.note
		})
		require.Less(t, time.Since(told), 10*time.Second, "not only with the next heartbeat")
	}
}

//go:build linux

package chaos

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/api"
)

// illScenario readies a scenario for illnesses: healing is quick, and the fleet is watched.
func illScenario(t *testing.T, g *stage) *injector {
	g.patchHealing(t, g.agents[0].cluster)
	g.hurryHealing(t)
	x := newInjector(t, g.installation)
	x.looks = g.watchFleet(g.ctx, t)
	return x
}

// healingVerdict judges what came of it.
func (g *stage) healingVerdict(t *testing.T, x *injector) []string {
	t.Helper()
	x.looks.stop()
	g.jobs = append(g.jobs, x.proofs...)
	g.settle(g.ctx, g.jobs, 10*time.Second)
	lines, err := g.book.read()
	require.NoError(t, err)
	actions, err := g.healingActions()
	require.NoError(t, err)
	return judge(evidence{jobs: g.jobs, lines: lines, lives: g.lives(), drains: x.drains, illnesses: x.illnesses,
		looks: x.looks.all(), actions: actions}).problems
}

// degradedAgent makes one of two agents ill for a while.
func degradedAgent(t *testing.T, g *stage) []string {
	x := illScenario(t, g)
	x.fallIll(g.ctx, g.agents[0], fault{kind: faultDegraded, hold: time.Second})
	return g.healingVerdict(t, x)
}

// illInMaintenance makes an agent ill that an operator keeps out of service.
func illInMaintenance(t *testing.T, g *stage) []string {
	x := illScenario(t, g)
	x.fallIll(g.ctx, g.agents[0], fault{kind: faultKept})
	return g.healingVerdict(t, x)
}

// allIll makes all agents critical, with work in flight: somebody must go on serving.
func allIll(t *testing.T, g *stage) []string {
	x := illScenario(t, g)
	for _, m := range g.agents {
		require.NoError(t, m.tell(api.HealthCritical))
	}
	whole := func(l fleetLook) bool {
		for i := range l.agents {
			if l.agents[i].Health == api.HealthHealthy {
				return false
			}
		}
		return len(l.agents) == len(g.agents)
	}
	require.Eventually(t, func() bool { return whole(g.look(0)) }, 20*time.Second, lookEvery,
		"all agents are rated as ill")
	pause(g.ctx, healLimit)
	var problems []string
	seen := g.look(0)
	serving := 0
	for i := range seen.agents {
		if seen.agents[i].Status == api.AgentOnline {
			serving++
		}
	}
	if serving == 0 {
		problems = append(problems, fmt.Sprintf("no agent serves any more: %+v", seen.agents))
	}
	return append(problems, g.healingVerdict(t, x)...)
}

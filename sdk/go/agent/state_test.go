package agent_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/agent/agenttest"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// keeping starts an agent that keeps state and waits until the hub knows of it.
func keeping(t *testing.T, hub *agenttest.Hub, s *agent.State) {
	t.Helper()
	start(t, hub, func(o *agent.Options) { o.State, o.StopTimeout = s, time.Millisecond },
		map[string]agent.Handler{"gate": newGate().handle})
	hub.WaitRegistered(1)
	hub.WaitPoll("the state", func(p protocol.Poll) bool { return p.State != nil })
}

func TestStateIsToldOnlyWhenItChanged(t *testing.T) {
	t.Parallel()
	hub := agenttest.NewHub(t, agenttest.Options{})
	state := agent.NewState()
	require.NoError(t, state.SetConfiguration("a", 1), "before it runs")
	keeping(t, hub, state)
	before := state.Summary()
	require.NoError(t, state.SetConfiguration("b", map[string]bool{"on": true}))
	told := hub.WaitPoll("the change", func(p protocol.Poll) bool {
		return p.State != nil &&
			p.State.Digest != before.Digest
	})
	require.Equal(t, state.Summary(), *told.State)
	require.NoError(t, state.SetConfiguration("b", map[string]bool{"on": true}), "the same value is no change")
	require.Equal(t, *told.State, state.Summary())
	hub.Assign(assign("t1", "gate"))
	next := hub.WaitPoll("t1", func(p protocol.Poll) bool { return len(p.Running) == 1 })
	require.Nil(t, next.State, "nothing changed since")
	require.Error(t, state.SetConfiguration("", 1))
	require.Error(t, state.SetConfiguration("a", func() {}), "no JSON")
}

func TestStateIsAskedAndSynced(t *testing.T) {
	t.Parallel()
	hub := agenttest.NewHub(t, agenttest.Options{})
	state := agent.NewState()
	changes := make(chan agent.StateChange, 10)
	state.OnChange = func(c agent.StateChange) { changes <- c }
	require.NoError(t, state.SetConfiguration("a", 1))
	keeping(t, hub, state)
	hub.Command(protocol.Command{Type: protocol.CommandRole, Role: api.RoleLeader, Epoch: 7,
		Targets: []string{"host-1"}})
	hub.Assign(assign("t1", "gate"))
	hub.WaitPoll("t1", func(p protocol.Poll) bool { return len(p.Running) == 1 && state.Targets("worker-1") != nil })

	hub.Command(protocol.Command{Type: protocol.CommandState, Request: "r1"})
	report := hub.WaitState("r1")
	require.Equal(t, state.Summary(), report.State)
	require.Len(t, report.Manifest, 3)
	require.Equal(t, []string{"host-1"}, state.Targets("worker-1"))
	require.Equal(t, "t1", state.Tasks("worker-1")[0].TaskID)
	require.Empty(t, report.Entries)

	ref := api.StateRef{Section: api.StateConfiguration, Key: "a"}
	hub.Command(protocol.Command{Type: protocol.CommandState, Request: "r2",
		Refs: []api.StateRef{ref, {Section: api.StateDigests, Key: "none"}}})
	entries := hub.WaitState("r2").Entries
	require.Len(t, entries, 1)
	require.Equal(t, json.RawMessage("1"), entries[0].Value)

	newer := entries[0]
	newer.Epoch, newer.Value, newer.Digest = 8, json.RawMessage("2"), "00112233"
	broken := newer
	broken.Section = "secrets"
	hub.Command(protocol.Command{Type: protocol.CommandSync, Request: "r3", Entries: []api.StateEntry{broken, newer}})
	report = hub.WaitState("r3")
	require.NotEmpty(t, report.Error, "one could not be taken")
	require.Equal(t, agent.StateChange{Section: api.StateConfiguration, Key: "a", Value: json.RawMessage("2")},
		<-changes)
	require.Equal(t, json.RawMessage("2"), state.Configuration()["a"])
	hub.Command(protocol.Command{Type: protocol.CommandSync, Request: "r4", Entries: []api.StateEntry{newer},
		Refs: []api.StateRef{{Section: api.StateTargets, Key: "worker-1"}}})
	require.Empty(t, hub.WaitState("r4").Error)
	require.Equal(t, api.StateTargets, (<-changes).Section,
		"what is the same is no change; what is to be forgotten is")

	hub.Command(protocol.Command{Type: protocol.CommandRole, Role: api.RoleStandby, Epoch: 9})
	require.Eventually(t, func() bool { return state.SetDigest("image", "sha256:1") != nil }, 15*time.Second,
		5*time.Millisecond)
	require.ErrorIs(t, state.RemoveConfiguration("a"), agent.ErrStandby)
}

// TestStateKeepsItsOwnEntry: over a copy of its own entry an agent writes its own again, whatever the copy's version.
func TestStateKeepsItsOwnEntry(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		version api.StateVersion
		digest  string
		targets []string
		error   string
	}{
		"of another process":   {api.StateVersion{Epoch: 7, Number: 50}, "00112233", []string{"host-1"}, ""},
		"with the same digest": {api.StateVersion{Epoch: 7, Number: 50}, "", []string{"host-1"}, ""},
		"of a high epoch":      {api.StateVersion{Epoch: 1 << 53, Number: 1}, "00112233", []string{"host-1"}, ""},
		"without a next number": {api.StateVersion{Epoch: 7, Number: 1 << 53}, "00112233", []string{"host-1"},
			"so that there is a next one"},
		"while it has none": {api.StateVersion{Epoch: 7, Number: 50}, "00112233", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hub := agenttest.NewHub(t, agenttest.Options{})
			state := agent.NewState()
			state.OnChange = func(c agent.StateChange) { t.Error("it is no change", c) }
			keeping(t, hub, state)
			ref := api.StateRef{Section: api.StateTargets, Key: "worker-1"}
			hub.Command(protocol.Command{Type: protocol.CommandRole, Role: api.RoleMember, Epoch: 7, Targets: c.targets})
			hub.Command(protocol.Command{Type: protocol.CommandState, Request: "r1", Refs: []api.StateRef{ref}})
			entries := hub.WaitState("r1").Entries
			copied := api.StateEntry{StateRef: ref, StateVersion: c.version, Digest: c.digest,
				Value: json.RawMessage(`["stolen"]`)}
			if c.digest == "" {
				copied.Digest = entries[0].Digest
			}
			hub.Command(protocol.Command{Type: protocol.CommandSync, Request: "r2", Entries: []api.StateEntry{copied}})
			require.Contains(t, hub.WaitState("r2").Error, c.error)
			require.Equal(t, c.targets, state.Targets("worker-1"))
			hub.Command(protocol.Command{Type: protocol.CommandState, Request: "r3", Refs: []api.StateRef{ref}})
			now := hub.WaitState("r3").Entries[0]
			require.Equal(t, c.error == "", now.Newer(c.version))
			require.NoError(t, state.SetConfiguration("later", 1))
		})
	}
}

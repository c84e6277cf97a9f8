package hub

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/protocol"
)

// What one agent says is told together with what others say. So it must not hold what JSON cannot have: then nothing
// would be told of the others either.
func TestWhatAnAgentTellsCanBeToldToOthers(t *testing.T) {
	var late time.Time // in UTC it is of the year 10000
	require.NoError(t, json.Unmarshal([]byte(`"9999-12-31T23:59:59-23:59"`), &late))
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		_, err := b.openSession(t.Context(), protocol.Register{AgentID: "late", InstanceID: "late-instance", Cluster: "c",
			AgentProfile: fleet.AgentProfile{MaxTasks: 1, StartedAt: late}}, fleet.JoinToken{}, false)
		requireCode(t, protocol.CodeInvalidRequest, err)

		a := b.register("a", 1)
		b.pass(0)
		given := a.give(task("j~~0.1", func(in *contract.RunTaskInput) {
			in.Instance = &fleet.InstanceOf{Job: "j", Name: "0", Version: 1}
		}))
		a.session().attempts[attemptKey{given.TaskID, 1}].accepted = false // its next poll tells when it began
		for range 3 {
			a.poll(func(p *protocol.Poll) {
				p.Metrics = protocol.Metrics{CPUPercent: 1e308, MemoryPercent: 1e308, DiskPercent: -1e308}
				p.Running = []protocol.RunningAttempt{{TaskID: given.TaskID, Attempt: 1, Token: given.Token, StartedAt: &late}}
			})
		}
		found, err := b.readInstances(t.Context(), contract.ReadInstancesInput{})
		require.NoError(t, err)
		require.Len(t, found.Instances, 1)
		_, err = json.Marshal(found)
		require.NoError(t, err)
		host := a.session().workerEntry(time.Now()).GetHostInfo()
		require.Equal(t, []float32{1, 1}, []float32{host.GetCurrentHostCpuUsage(), host.GetCurrentHostMemUsage()})

		b.logs.Keep("a", given.TaskID, 1, time.Now())
		require.True(t, b.logs.Add("a", given.TaskID, protocol.Log{Attempt: 1,
			Lines: []fleet.LogLine{{Number: 1, At: late, Text: "late"}, {Number: 2, At: time.Now(), Text: "now"}}}))
		require.Len(t, b.logs.Tail(given.TaskID, 1), 1)
		requireCode(t, protocol.CodeInvalidRequest, a.report(given, fleet.AttemptCompleted,
			func(in *resultInput) { in.Body.EndedAt = late }))
		require.NoError(t, a.report(given, fleet.AttemptCompleted))
	})
}

package hub

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/protobuf/proto"

	"mainstay.dev/mainstay/internal/array"
	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// What one agent says is told together with what others say. So it must not hold what JSON cannot have: then nothing
// would be told of the others either.
func TestWhatAnAgentTellsCanBeToldToOthers(t *testing.T) {
	var late time.Time // in UTC it is of the year 10000
	require.NoError(t, json.Unmarshal([]byte(`"9999-12-31T23:59:59-23:59"`), &late))
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		_, err := b.openSession(t.Context(), protocol.Register{AgentID: "late", InstanceID: "late-instance", Cluster: "c",
			AgentProfile: api.AgentProfile{MaxTasks: 1, StartedAt: late}}, cluster.JoinToken{}, false)
		requireCode(t, protocol.CodeInvalidRequest, err)

		a := b.register("a", 1)
		b.pass(0)
		given := a.give(aTask("j~~0.1", func(in *contract.RunTaskInput) {
			in.Instance = &api.InstanceOf{Job: "j", Name: "0", Version: 1}
		}))
		a.session().work.attempts[attemptKey{given.TaskID, 1}].accepted = false // its next poll tells when it began
		for range 3 {
			a.poll(func(p *protocol.Poll) {
				p.Metrics = protocol.Metrics{CPUPercent: new(1e308), MemoryPercent: new(1e308), DiskPercent: new(-1e308)}
				p.Running = []protocol.RunningAttempt{{TaskID: given.TaskID, Attempt: 1, Token: given.Token, StartedAt: &late}}
			})
		}
		found, err := b.readInstances(t.Context(), contract.ReadInstancesInput{})
		require.NoError(t, err)
		require.Len(t, found.Instances, 1)
		_, err = json.Marshal(found)
		require.NoError(t, err)
		host := a.session().published().Entry(time.Now()).GetHostInfo()
		require.Equal(t, []float32{1, 1}, []float32{host.GetCurrentHostCpuUsage(), host.GetCurrentHostMemUsage()})

		b.logs.Keep("a", given.TaskID, 1, time.Now())
		require.True(t, b.logs.Add("a", given.TaskID, protocol.Log{Attempt: 1,
			Lines: []api.LogLine{{Number: 1, At: late, Text: "late"}, {Number: 2, At: time.Now(), Text: "now"}}}))
		require.Len(t, b.logs.Tail(given.TaskID, 1), 1)
		requireCode(t, protocol.CodeInvalidRequest, a.report(given, api.AttemptCompleted,
			func(in *resultInput) { in.Body.EndedAt = late }))
		require.NoError(t, a.report(given, api.AttemptCompleted))
	})
}

// A note of an agent's health is part of many messages of Temporal, in which a control character takes six bytes.
func TestNotesOfHealthAreCleaned(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 1)
		a.poll(func(p *protocol.Poll) { p.Health, p.HealthNote = new(0.2), strings.Repeat("\x01", 100)+"disk" })
		require.Contains(t, b.rated("a").Why, ": "+strings.Repeat(" ", 100)+"disk")
	})
}

// The newest heartbeats of all attempts under way are in the state of their workflow, which Temporal ends when that has
// more than 8 MiB. 2 of these may be events that wait, and half of one is for all else.
func TestHeartbeatsOfManyAttemptsFit(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("i", 63)
	beat := func(taskID, text string) (*attempt, int) {
		s := &session{agent: long, instance: strings.Repeat("i", 127), epoch: math.MaxInt64}
		a := &attempt{attemptClaims: attemptClaims{Task: taskID, Attempt: 1}, session: s}
		for n := range 100 {
			said := []rune(strings.Repeat(text, 1000))
			said[n%15] = 'y' // another step
			a.apply(protocol.RunningAttempt{TaskID: taskID, Attempt: 1, CheckpointDigest: long + "d",
				Progress: &api.Progress{Percent: n, Step: string(said[:200]), Message: string(said),
					EstimatedDuration: math.MaxInt64},
				Checkpoint: json.RawMessage(`"` + strings.Repeat("<", beatCheckpointBytes-2) + `"`)}, time.Now())
		}
		details, err := store.AttemptPayloads(a.heartbeat(long), nil)
		require.NoError(t, err)
		return a, proto.Size(details)
	}
	const most = 8<<20 - 2<<20 - 1<<19
	for _, text := range []string{"x", "\x01", "\"", "\n", "<", "é", "\u2028", "\U0001F600", "\u0085"} {
		a, bytes := beat("r~s", text)
		require.Len(t, a.marks, 16)
		require.Greater(t, bytes, beatCheckpointBytes)
		require.Less(t, job.MaxParallel*bytes, most, "%q", text)
		_, bytes = beat("a~.b1", text)
		require.Less(t, array.MaxParallel*bytes, most, "%q", text)

		a.checkpoint = append(a.checkpoint, ' ')
		require.Nil(t, a.heartbeat("h").Checkpoint, "it is too large")
		require.True(t, new(a.heartbeat("h")).End().CheckpointLost)
		require.NotNil(t, a.report("h").Checkpoint, "the hub reports it at the end")
		a.checkpoint, a.cancelling = a.checkpoint[:2], true
		details, err := store.AttemptPayloads(a.heartbeat("h"), nil)
		require.NoError(t, err)
		require.Less(t, proto.Size(details), 1<<10, "one that is cancelled may never end, and the next begins beside it")
	}
	alone, _ := beat("t", "x")
	alone.checkpoint = append(alone.checkpoint, ' ')
	require.NotNil(t, alone.heartbeat("h").Checkpoint, "a task has a workflow of its own")
}

// An answer of the hub is a message of Temporal, which refuses one of 2 MiB. What one agent writes must not make it so
// large: the reader would get none of the events.
func TestEventsOfManyLongReportsAreToldInParts(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		const attempts = 400
		a := b.register("a", attempts)
		b.events(contract.ReadEventsInput{}) // somebody listens
		text := strings.Repeat("\x01", 1000)
		var running []protocol.RunningAttempt
		b.mu.Lock()
		for i := range attempts {
			key := attemptKey{fmt.Sprint("t", i), 1}
			s := b.sessions["a"]
			s.work.attempts[key] = &attempt{attemptClaims: attemptClaims{Task: key.task, Attempt: 1}, session: s, accepted: true, deliveredIn: 1}
			running = append(running, protocol.RunningAttempt{TaskID: key.task, Attempt: 1,
				Progress: &api.Progress{Step: text[:200], Message: text}})
		}
		b.mu.Unlock()
		a.poll(func(p *protocol.Poll) { p.Running = running })
		told, ask := 0, contract.ReadEventsInput{}
		for more := true; more; {
			_, read := b.events(ask)
			answer, err := json.Marshal(read)
			require.NoError(t, err)
			require.Less(t, len(answer), 2<<20)
			require.NotEmpty(t, read.Events)
			told += len(read.Events)
			more, ask = read.More, contract.ReadEventsInput{Process: read.Process, After: read.Seq}
		}
		require.Equal(t, attempts, told)
	})
}

// Who has a join token may register many agents. What each of them makes up takes little memory and little of the log.
func TestWhatAnAgentMakesUpTakesLittle(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		core, lines := observer.New(zap.WarnLevel)
		b.log = zap.New(core)
		listed := func(poll int) (running []protocol.RunningAttempt) {
			for i := range 10_000 {
				running = append(running, protocol.RunningAttempt{TaskID: fmt.Sprintf("x%d-%d", poll, i), Attempt: 1,
					Token: "made up", State: protocol.RunningStuck})
			}
			return running
		}
		a := b.register("a", 1, func(r *protocol.Register) { r.Running = listed(0) })
		require.Nil(t, a.session().registration.Running)
		require.LessOrEqual(t, len(a.session().orders.waiting), 1000)
		for i := range 5 {
			a.poll(func(p *protocol.Poll) { p.Running = listed(i + 1) })
		}
		require.LessOrEqual(t, len(a.session().work.leftovers), 1000)
		require.LessOrEqual(t, lines.Len(), 1)

		a.poll(func(p *protocol.Poll) {
			p.Running = listed(9)
			for i := range p.Running {
				p.Running[i].State = ""
			}
		})
		s := a.session()
		require.LessOrEqual(t, len(s.orders.waiting)+len(s.orders.told), 1000)
	})
}

// One tenant may have many instances with long tags.
func TestInstancesAreToldInParts(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		const instances = 2000
		b.register("a", instances, func(r *protocol.Register) { r.Address = strings.Repeat("\x01", 255) })
		offer := &api.ServiceOffer{Name: "s", Tags: slices.Repeat([]string{strings.Repeat("t", 63)}, 16)}
		b.mu.Lock()
		s := b.sessions["a"]
		for i := range instances {
			key := attemptKey{fmt.Sprintf("t%04d", i), 1}
			claims := attemptClaims{Task: key.task, Attempt: 1,
				JobInstance: &api.InstanceOf{Job: "j", Name: fmt.Sprint(i), Service: offer}}
			s.work.attempts[key] = &attempt{attemptClaims: claims, session: s, accepted: true, startedAt: time.Now()}
		}
		b.mu.Unlock()
		told, in := 0, contract.ReadInstancesInput{}
		for more := true; more; {
			found, err := b.readInstances(t.Context(), in)
			require.NoError(t, err)
			answer, err := json.Marshal(found)
			require.NoError(t, err)
			require.Less(t, len(answer), 2<<20)
			require.NotEmpty(t, found.Instances)
			told += len(found.Instances)
			more, in.After = found.More, found.Instances[len(found.Instances)-1].TaskID
		}
		require.Equal(t, instances, told)
	})
}

package hub

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

func TestReadInstances(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 2, func(r *protocol.Register) { r.Address, r.Zone = "10.0.0.7:5000", "north" })
		b.pass(0)
		a.give(aTask("plain"))
		instance := api.InstanceOf{Job: "ranker", Name: "0", Version: 3, Service: &api.ServiceOffer{Name: "rank", Port: "8080"},
			Health: &api.ServiceCheck{TCP: &api.TCPCheck{Port: "8080"}}}
		given := a.give(aTask("ranker~~0.1", func(in *contract.RunTaskInput) { in.Instance = &instance }))
		require.Equal(t, &instance, given.Instance, "the agent gets the check")
		read := func(job string) []contract.FoundInstance {
			result, err := b.readInstances(t.Context(), contract.ReadInstancesInput{Job: job})
			require.NoError(t, err)
			return result.Instances
		}
		health := func() api.InstanceHealth { return read("")[0].Checked }
		found := read("ranker")
		require.Len(t, found, 1)
		require.Equal(t, []string{"a", "10.0.0.7", "north", "rank"}, []string{found[0].Agent, found[0].Host, found[0].Zone,
			found[0].ServiceName()})
		require.Empty(t, read("other"))

		require.Equal(t, api.InstanceStarting, health(), "its agent has not told of its checks")
		tell := func(word api.InstanceHealth) {
			a.poll(func(p *protocol.Poll) {
				p.Running = []protocol.RunningAttempt{{TaskID: given.TaskID, Attempt: 1, Token: given.Token, Health: word},
					{TaskID: "plain", Attempt: 1}}
			})
		}
		tell(api.InstancePassing)
		require.Equal(t, api.InstancePassing, health())

		b.mu.Lock()
		delete(b.sessions, "a") // as a new process of the hub: it knows nothing
		b.mu.Unlock()
		a = b.register("a", 2, func(r *protocol.Register) {
			r.Running = []protocol.RunningAttempt{{TaskID: given.TaskID, Attempt: 1, Token: given.Token,
				Health: api.InstanceFailing}}
		})
		require.Equal(t, api.InstanceFailing, health(), "it is known from its token")
		require.Equal(t, "rank", read("ranker")[0].ServiceName())
		tell(api.InstancePassing)
		require.Equal(t, api.InstancePassing, health())
		a.hangUp()
		require.Equal(t, api.InstanceFailing, health(), "its agent is out of touch")
	})
}

func TestJobsAreToldOfTheHealthOfTheirInstances(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 1)
		b.pass(0)
		told := func() (words []string) {
			b.pass(3 * time.Second)
			b.temporal.mu.Lock()
			defer b.temporal.mu.Unlock()
			words, b.temporal.health = b.temporal.health, nil
			return words
		}
		checked := &api.ServiceCheck{TCP: &api.TCPCheck{Port: "80"}}
		given := a.give(aTask("j~~0.1", func(in *contract.RunTaskInput) {
			in.Instance = &api.InstanceOf{Job: "j", Name: "0", Version: 1, Health: checked}
		}))
		tell := func(word api.InstanceHealth) {
			a.poll(func(p *protocol.Poll) {
				p.Running = []protocol.RunningAttempt{{TaskID: given.TaskID, Attempt: 1, Token: given.Token, Health: word}}
			})
		}
		require.Equal(t, []string{"j~~0.1 starting"}, told())
		b.temporal.deaf = 2
		tell(api.InstancePassing)
		require.Equal(t, []string{"j~~0.1 passing"}, told(), "what was not told is told again")
		require.Empty(t, told(), "what is known is not")
		tell(api.InstanceFailing)
		require.Equal(t, []string{"j~~0.1 failing"}, told())
		other := b.register("b", 1)
		b.pass(0)
		other.give(aTask("k~~0.1", func(in *contract.RunTaskInput) {
			in.Instance = &api.InstanceOf{Job: "k", Name: "0", Version: 1}
		}))
		tell(api.InstanceFailing)
		require.Equal(t, []string{"k~~0.1 passing"}, told(), "without a check it passes while it runs")
		other.hangUp()
		tell(api.InstanceFailing)
		require.Equal(t, []string{"k~~0.1 failing", "k~~0.1"}, append(told(), told()...), "its agent is gone")
	})
}

// A check that flips all the time must not have its job's workflow run all the time.
func TestAJobIsNotToldOfEachFlap(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 1)
		b.pass(0)
		given := a.give(aTask("j~~0.1", func(in *contract.RunTaskInput) {
			in.Instance = &api.InstanceOf{Job: "j", Name: "0", Version: 1,
				Health: &api.ServiceCheck{TCP: &api.TCPCheck{Port: "80"}}}
		}))
		for n := range 300 {
			health := api.InstancePassing
			if n%2 == 0 {
				health = api.InstanceFailing
			}
			a.poll(func(p *protocol.Poll) {
				p.Running = []protocol.RunningAttempt{{TaskID: given.TaskID, Attempt: 1, Token: given.Token, Health: health}}
			})
			b.pass(100 * time.Millisecond)
		}
		b.pass(3 * time.Second)
		b.temporal.mu.Lock()
		defer b.temporal.mu.Unlock()
		words := b.temporal.health
		require.Less(t, len(words), 130, "50 at once, and 2 a second")
		require.Equal(t, "j~~0.1 passing", words[len(words)-1])
	})
}

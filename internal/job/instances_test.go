package job

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/sdk/api"
)

func withInstances(kind api.JobType, count int) api.JobDefinition {
	return api.JobDefinition{Job: "j", Type: kind, Cluster: "c",
		Instances: &api.Instances{Count: counted(count), Task: &api.TaskSpec{Type: "serve"}}}
}

// counted is a count that a definition gives; 0: it gives none.
func counted(count int) *int {
	if count == 0 {
		return nil
	}
	return &count
}

// keeper makes plans and carries them out at once.
type keeper struct {
	*Job
	now time.Time
}

func newKeeper(kind api.JobType, count int) *keeper {
	k := &keeper{Job: &Job{Name: "j"}, now: noon}
	k.apply(withInstances(kind, count))
	return k
}

func (k *keeper) apply(d api.JobDefinition) { k.Apply(d, "ann", k.now) }

// plan says what was planned, as "+0 -1".
func (k *keeper) plan(agents *Agents) string {
	change := k.Plan(agents, k.now)
	k.Done(change, nil, k.now)
	var words []string
	for _, i := range change.Start {
		words = append(words, "+"+i.Name)
	}
	for _, i := range change.Stop {
		words = append(words, "-"+i.Name)
	}
	return strings.Join(words, " ")
}

func (k *keeper) end(name string, status api.TaskStatus) {
	k.EndInstance(k.FindInstance(name).TaskID, status, "", k.now)
}

func (k *keeper) after(d time.Duration) *keeper {
	k.now = k.now.Add(d)
	return k
}

func TestAServiceKeepsItsCount(t *testing.T) {
	t.Parallel()
	k := newKeeper(api.JobService, 3)
	require.Equal(t, "+0 +1 +2", k.plan(nil))
	require.Empty(t, k.plan(nil), "a plan that was carried out is not repeated")
	first := k.FindInstance("1").TaskID
	k.end("1", api.TaskCompleted)
	require.Empty(t, k.plan(nil), "an instance that ended soon is started after a backoff")
	require.Equal(t, "+1", k.after(3*time.Second).plan(nil))
	require.NotEqual(t, first, k.FindInstance("1").TaskID)
	k.Count = 1
	require.Equal(t, "-1 -2", k.plan(nil))
	require.Empty(t, k.plan(nil), "it was asked to stop, and is not asked again")
	k.end("1", api.TaskCancelled)
	k.end("2", api.TaskCancelled)
	k.Count = 2
	require.Equal(t, "+1", k.plan(nil))
}

// TestTheNextInstanceWaitsForTheOneBefore: fenced work that was cancelled may go on where no hub reaches it. The next
// one waits until it has certainly stopped, also when its agent was away meanwhile.
func TestTheNextInstanceWaitsForTheOneBefore(t *testing.T) {
	t.Parallel()
	for name, meanwhile := range map[string]*Agents{"its agent stays": {Eligible: []string{"a"}}, "its agent leaves": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k, there := newKeeper(api.JobSystem, 0), &Agents{Eligible: []string{"a"}}
			require.Equal(t, "+a", k.plan(there))
			require.Equal(t, "-a", k.plan(&Agents{}))
			task := k.FindInstance("a").TaskID
			k.end("a", api.TaskCancelled)
			k.Hold(task, k.now.Add(time.Minute))
			require.Empty(t, k.plan(meanwhile))
			require.Empty(t, k.after(59*time.Second).plan(there))
			require.Equal(t, k.now.Add(time.Second), k.NextStart())
			require.Equal(t, "+a", k.after(time.Second).plan(there))
		})
	}
}

func TestAnInstanceThatEndsAgainAndAgainStartsEverMoreRarely(t *testing.T) {
	t.Parallel()
	k := newKeeper(api.JobService, 1)
	var last time.Duration
	for range 5 {
		require.Equal(t, "+0", k.plan(nil))
		k.end("0", api.TaskFailed)
		wait := k.NextStart().Sub(k.now)
		require.Greater(t, wait, last)
		last = wait
		k.after(wait)
	}
	require.Equal(t, "+0", k.plan(nil))
	k.after(time.Hour).end("0", api.TaskFailed)
	require.Less(t, k.NextStart().Sub(k.now), 3*time.Second, "it ran for long")
}

func TestASystemJobHasOneOnEachAgent(t *testing.T) {
	t.Parallel()
	k := newKeeper(api.JobSystem, 0)
	require.Empty(t, k.plan(nil), "the agents are not known yet")
	require.Equal(t, "+a +b", k.plan(&Agents{Eligible: []string{"a", "b"}}))
	require.Equal(t, "+c", k.plan(&Agents{Eligible: []string{"a", "b", "c"}}))
	require.Equal(t, "j~~c.", k.FindInstance("c").TaskID[:5], "the id of its task has the agent")
	require.Equal(t, "c", TaskOf(k.Definition(), k.FindInstance("c")).Agent)
	require.Empty(t, k.plan(&Agents{Eligible: []string{"a", "c"}, Away: []string{"b"}}), "one that is away keeps its own")
	require.Equal(t, "-b", k.plan(&Agents{Eligible: []string{"a", "c"}}))
	k.end("a", api.TaskCompleted)
	require.Equal(t, "+a", k.after(3*time.Second).plan(&Agents{Eligible: []string{"a", "c"}}))
}

func TestASysbatchJobRunsOnceOnEachAgent(t *testing.T) {
	t.Parallel()
	k := newKeeper(api.JobSysbatch, 0)
	require.Equal(t, "+a +b", k.plan(&Agents{Eligible: []string{"a", "b"}}))
	k.end("a", api.TaskCompleted)
	require.Equal(t, "+c", k.after(time.Hour).plan(&Agents{Eligible: []string{"a", "b", "c"}}), "a late one is included")
	k.end("b", api.TaskFailed)
	k.end("c", api.TaskCompleted)
	require.Empty(t, k.after(time.Hour).plan(&Agents{Eligible: []string{"a", "b", "c", "d"}}), "it is over")
	d := withInstances(api.JobSysbatch, 0)
	d.Instances.Task.Payload = []byte(`1`)
	k.apply(d)
	require.Equal(t, "+a +b +c +d", k.plan(&Agents{Eligible: []string{"a", "b", "c", "d"}}))
}

func TestANewVersionTakesThePlaceOfInstances(t *testing.T) {
	t.Parallel()
	k := newKeeper(api.JobService, 2)
	require.Equal(t, "+0 +1", k.plan(nil))
	k.apply(withInstances(api.JobService, 3))
	require.Equal(t, "+2", k.plan(nil), "another count replaces nothing")
	d := withInstances(api.JobService, 3)
	d.Instances.Task.Payload = []byte(`1`)
	k.apply(d)
	require.Equal(t, "-0 -1 -2", k.plan(nil))
	k.end("1", api.TaskCancelled)
	require.Equal(t, "+1", k.plan(nil))
	require.Equal(t, 3, k.FindInstance("1").Version)
}

func TestASystemJobThatBecomesAService(t *testing.T) {
	t.Parallel()
	k := newKeeper(api.JobSystem, 0)
	require.Equal(t, "+a", k.plan(&Agents{Eligible: []string{"a"}}))
	k.apply(withInstances(api.JobService, 1))
	require.Equal(t, "+0 -a", k.plan(nil), "also with the count that is the default")
}

func TestAJobThatIsStoppedOrPaused(t *testing.T) {
	t.Parallel()
	k := newKeeper(api.JobService, 1)
	k.Paused = &api.Decision{}
	require.Empty(t, k.plan(nil))
	k.Paused = nil
	require.Equal(t, "+0", k.plan(nil))
	k.Stopped = &api.Decision{Reason: "night"}
	require.Equal(t, "-0", k.plan(nil))
	require.True(t, k.AnyOpen())
	k.end("0", api.TaskCancelled)
	require.Empty(t, k.plan(nil))
	require.False(t, k.AnyOpen())
	k.Stopped = nil
	require.Equal(t, "+0", k.plan(nil))
}

func TestAnInstanceThatWasNeverStartedIsGone(t *testing.T) {
	t.Parallel()
	k := newKeeper(api.JobService, 1)
	start := k.Plan(nil, k.now)
	require.Equal(t, start, k.Plan(nil, k.now), "what was not carried out is planned again, under the same id")
	k.Count = 0
	change := k.Plan(nil, k.now)
	k.Done(change, []string{change.Stop[0].TaskID}, k.now)
	require.False(t, k.AnyOpen())
}

func TestAgentsForInstances(t *testing.T) {
	t.Parallel()
	member := func(id string, change func(*cluster.Member)) cluster.Member {
		m := cluster.Member{AgentID: id, Status: api.AgentOnline, AgentProfile: api.AgentProfile{
			TaskTypes: []string{"serve"}, Capabilities: []string{"linux"}, Zone: "north"}}
		if change != nil {
			change(&m)
		}
		return m
	}
	c := &cluster.Cluster{Members: []cluster.Member{
		member("able", nil),
		member("cordoned", nil),
		member("elsewhere", func(m *cluster.Member) { m.Zone = "south" }),
		member("offline", func(m *cluster.Member) { m.Status = api.AgentOffline }),
		member("other-type", func(m *cluster.Member) { m.TaskTypes = []string{"echo"} }),
		member("suspect", func(m *cluster.Member) { m.Status = api.AgentSuspect }),
		member("unable", func(m *cluster.Member) { m.Capabilities = nil }),
	}, Cordons: cluster.Cordons{{AgentID: "cordoned"}}}
	d := withInstances(api.JobSystem, 0)
	d.Instances.Place = &api.InstancePlace{Capabilities: []string{"linux"}, Zone: "north"}
	require.Equal(t, Agents{Eligible: []string{"able", "suspect"}, Away: []string{"cordoned", "offline"}}, AgentsFor(c, &d))
	d.Instances.Place.Resources.CPU = "2"
	require.Equal(t, Agents{}, AgentsFor(c, &d), "none of them offers anything")
	c.Members[0].Resources = &api.Inventory{Amounts: api.Amounts{CPU: "4"}}
	require.Equal(t, Agents{Eligible: []string{c.Members[0].AgentID}}, AgentsFor(c, &d))
	require.Equal(t, "2", TaskOf(&d, &api.Instance{}).Place.Resources.CPU)
	d.Instances.Place.Demand = api.Demand{}
	d.Instances.Place.Agent = "able"
	require.Equal(t, Agents{Eligible: []string{"able"}}, AgentsFor(c, &d))
	d.Tenant, c.Config.Tenants = "acme", []string{"beta"}
	require.Equal(t, Agents{}, AgentsFor(c, &d), "the cluster is for others by now")
}

func TestIdsOfInstances(t *testing.T) {
	t.Parallel()
	for id, want := range map[string][2]string{
		"j~~0.k3":          {"j", "0"},
		"acme:j~~a.b-1.k3": {"acme:j", "a.b-1"},
		"r-1~build.2":      {},
		"a-1~.b4":          {},
		"j~~0":             {},
	} {
		name, instance, ok := CutInstanceID(id)
		require.Equal(t, want, [2]string{name, instance}, id)
		require.Equal(t, want[0] != "", ok, id)
	}
}

// A job keeps why each of its instances has ended: all of it must fit into a message.
func TestAJobFitsIntoAMessageWhenAllInstancesFail(t *testing.T) {
	t.Parallel()
	k := newKeeper(api.JobService, MaxCount)
	k.plan(nil)
	for _, task := range k.OpenTasks() {
		k.EndInstance(task, api.TaskFailed, strings.Repeat("error ", 1500), k.now)
	}
	text, err := json.Marshal(k.Job)
	require.NoError(t, err)
	require.Less(t, len(text), 1<<20)
	require.Contains(t, string(text), "error error")

	k.now = k.now.Add(time.Hour)
	k.plan(nil)
	k.Stopped = &api.Decision{Reason: strings.Repeat("<", 512)} // six bytes each as JSON
	k.plan(nil)
	for _, task := range k.OpenTasks() {
		k.EndInstance(task, api.TaskFailed, strings.Repeat("<", 8<<10), k.now)
	}
	text, err = json.Marshal(k.Job)
	require.NoError(t, err)
	require.Less(t, len(text), 2<<20)
}

package gateway_test

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	workerpb "go.temporal.io/api/worker/v1"
	"go.temporal.io/api/workflowservice/v1"

	"mainstay.dev/mainstay/gateway"
	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
)

// watchedFleet is a fake Temporal whose fleet a gateway tells of.
type watchedFleet struct {
	*fakeTemporal
	registry *prometheus.Registry
	counts   map[string]int64 // of tasks, by status and cluster, as in "review east"
	counted  int
}

// CountWorkflow counts the tasks of a status, of one cluster or of all.
func (f *watchedFleet) CountWorkflow(
	_ context.Context, r *workflowservice.CountWorkflowExecutionsRequest,
) (*workflowservice.CountWorkflowExecutionsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counted++
	answer := &workflowservice.CountWorkflowExecutionsResponse{}
	for key, n := range f.counts {
		status, cluster, _ := strings.Cut(key, " ")
		of := strings.Contains(r.GetQuery(), "MainstayCluster = '"+cluster+"'") ||
			!strings.Contains(r.GetQuery(), "MainstayCluster")
		if of && strings.Contains(r.GetQuery(), "MainstayStatus BETWEEN '"+status+"' AND '"+status+"'") {
			answer.Count += n
		}
	}
	return answer, f.fail
}

func watchFleet(t *testing.T) *watchedFleet {
	t.Helper()
	w := &watchedFleet{fakeTemporal: newFake(), registry: prometheus.NewPedanticRegistry()}
	gateway.New(gateway.Options{Store: store.Store{Client: w}, Key: []byte(tokenKey), Registerer: w.registry}).
		Register(httpapi.New(httpapi.Options{}).API())
	return w
}

// told are all series as name{label="value"} and their values.
func (f *watchedFleet) told(t *testing.T) map[string]float64 {
	t.Helper()
	families, err := f.registry.Gather()
	require.NoError(t, err)
	all := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			all[family.GetName()+"{"+strings.Join(labels,
				",")+"}"] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return all
}

func members(online string, offline ...string) []cluster.Member {
	var all []cluster.Member
	for _, id := range strings.Fields(online) {
		all = append(all, cluster.Member{AgentID: id, Hub: "h1", Status: api.AgentOnline, StatusSince: time.Now()})
	}
	for _, id := range offline {
		all = append(all, cluster.Member{AgentID: id, Hub: "h1", Status: api.AgentOffline, StatusSince: time.Now()})
	}
	return all
}

// mainstay_gateway_tasks_submitted_total counts submissions by outcome.
func TestSubmissionsAreCounted(t *testing.T) {
	t.Parallel()
	w := &watchedFleet{fakeTemporal: newFake(), registry: prometheus.NewPedanticRegistry()}
	w.withCluster(api.ClusterConfig{Name: "east"})
	s := httpapi.New(httpapi.Options{})
	gateway.New(gateway.Options{Store: store.Store{Client: w}, Key: []byte(tokenKey), Registerer: w.registry}).
		Register(s.API())
	for body, status := range map[string]int{`{"id":"t-1","type":"echo","cluster":"east"}`: 202,
		`{"type":"echo","cluster":"nowhere"}`: 404} {
		require.Equal(t, status, do(s.Handler(), http.MethodPost, tasksPath, body).Code)
	}
	told := w.told(t)
	require.InDelta(t, 1, told["mainstay_gateway_tasks_submitted_total{outcome=accepted}"], 0)
	require.InDelta(t, 1, told["mainstay_gateway_tasks_submitted_total{outcome=rejected}"], 0)
}

// publish has a hub publish a live status of the agent a.
func publish(status api.AgentStatus) func(*watchedFleet, *cluster.Cluster) {
	return func(f *watchedFleet, _ *cluster.Cluster) {
		f.workers = []*workerpb.WorkerHeartbeat{{WorkerIdentity: contract.AgentIdentity("east", "a"),
			Plugins: []*workerpb.PluginInfo{contract.StatusPlugin(status, time.Now())}}}
	}
}

// Every metric of the fleet is moved by what it names, from one value to another; -1 is no series at all.
func TestFleetMetricsMove(t *testing.T) {
	t.Parallel()
	passive := api.ClusterConfig{Name: "east", ReplicationMode: api.ActivePassive}
	sharded := api.ClusterConfig{Name: "east", ReplicationMode: api.Sharded, Shards: 2}
	for _, c := range []struct {
		series   string
		why      string
		state    cluster.Cluster
		change   func(f *watchedFleet, c *cluster.Cluster)
		from, to float64
	}{
		{"stella_agent_cluster_members{cluster_id=east,status=online}", "one is lost",
			cluster.Cluster{Members: members("a b")}, lose, 2, 1},
		{"stella_agent_cluster_members{cluster_id=east,status=offline}", "one is lost",
			cluster.Cluster{Members: members("a b")}, lose, 0, 1},
		{"stella_agent_cluster_leader{agent_id=a,cluster_id=east}", "a leads",
			cluster.Cluster{Config: passive, Members: members("a b")}, lead("a", 3), -1, 1},
		{"stella_agent_cluster_leader{agent_id=a,cluster_id=east}", "b leads",
			cluster.Cluster{Config: passive, Members: members("a b"), Leader: "a"}, lead("b", 4), 1, -1},
		{"stella_agent_cluster_health{cluster_id=east}", "one is lost", cluster.Cluster{Members: members("a b")}, lose, 1,
			.5},
		{"stella_agent_cluster_health{cluster_id=east}", "the only one is lost", cluster.Cluster{Members: members("a")},
			lose, 1, 0},
		{"stella_agent_up{agent_id=a}", "it is lost", cluster.Cluster{Members: members("a")}, lose, 1, 0},
		{"stella_agent_up{agent_id=a}", "it is suspect", cluster.Cluster{Members: members("a")},
			become(api.AgentSuspect), 1, 0},
		{"stella_agent_up{agent_id=a}", "it is silent", cluster.Cluster{Members: members("a")},
			publish(api.AgentWarning), 1, 0},
		{"stella_agent_cluster_members{cluster_id=east,status=warning}", "one is silent",
			cluster.Cluster{Members: members("a b")}, publish(api.AgentWarning), 0, 1},
		{"stella_agent_cluster_members{cluster_id=east,status=suspect}", "one's connection closed",
			cluster.Cluster{Members: members("a b")}, publish(api.AgentSuspect), 0, 1},
		{"stella_agent_cluster_members{cluster_id=east,status=stopping}", "one stops",
			cluster.Cluster{Members: members("a b")}, publish(api.AgentStopping), 0, 1},
		{"stella_agent_up{agent_id=a}", "it is drained", cluster.Cluster{Members: members("a")},
			become(api.AgentDraining), 1, 1},
		{"stella_agent_up{agent_id=a}", "it is stopped for maintenance", cluster.Cluster{Members: members("a")},
			func(_ *watchedFleet, c *cluster.Cluster) {
				c.Members[0].Status, c.Members[0].Hub = api.AgentMaintenance, ""
			}, 1, -1},
		{"stella_agent_up{agent_id=a}", "it says goodbye", cluster.Cluster{Members: members("a")},
			func(_ *watchedFleet, c *cluster.Cluster) { c.Members = nil }, 1, -1},
		{"stella_agent_up{agent_id=a}", "it was lost long ago", cluster.Cluster{Members: members("", "a")},
			func(_ *watchedFleet, c *cluster.Cluster) {
				c.Members[0].StatusSince = time.Now().Add(-25 * time.Hour)
			}, 0, -1},
		{"mainstay_cluster_scaling_actions_total{change=up,cluster_id=east,outcome=failed}", "agents do not start",
			cluster.Cluster{Scaling: &cluster.ScalingState{}},
			func(_ *watchedFleet, c *cluster.Cluster) { c.Scaling.Ups.Failed++ }, 0, 1},
		{"mainstay_cluster_scaling_actions_total{change=down,cluster_id=east,outcome=succeeded}", "agents stop",
			cluster.Cluster{Scaling: &cluster.ScalingState{}},
			func(_ *watchedFleet, c *cluster.Cluster) { c.Scaling.Downs.Succeeded++ }, 0, 1},
		{"mainstay_cluster_scaling_blocked{change=up,cluster_id=east}", "agents do not start",
			cluster.Cluster{Scaling: &cluster.ScalingState{}},
			func(_ *watchedFleet, c *cluster.Cluster) { c.Scaling.Blocked = &api.ScalingBlocked{} }, 0, 1},
		{"stella_agent_live_agents{}", "one is lost", cluster.Cluster{Members: members("a b")}, lose, 2, 1},
		{"stella_agent_lease_count{agent_id=a}", "it becomes leader",
			cluster.Cluster{Config: passive, Members: members("a b")}, lead("a", 3), 0, 1},
		{"stella_agent_lease_count{agent_id=a}", "it gets shards",
			cluster.Cluster{Config: sharded, Members: members("a")}, own("a", "a"), 0, 2},
		{"stella_agent_partition_leader_agent_id{agent_id=a,cluster_id=east,partition=1}", "it gets the shard",
			cluster.Cluster{Config: sharded, Members: members("a")}, own("", "a"), -1, 1},
		{"stella_agent_partition_leader_agent_id{agent_id=a,cluster_id=east,partition=leader}", "it becomes leader",
			cluster.Cluster{Config: passive, Members: members("a")}, lead("a", 3), -1, 1},
		{"stella_agent_partition_lease_epoch{cluster_id=east,partition=leader}", "another leads",
			cluster.Cluster{Config: passive, LeaderEpoch: 3}, lead("a", 9), 3, 9},
		{"stella_agent_partition_failover_count{cluster_id=east,partition=0}", "it went to another",
			cluster.Cluster{Config: sharded}, func(_ *watchedFleet, c *cluster.Cluster) {
				c.Shards = []cluster.ShardOwner{{Owner: "a", Handovers: 4}, {}}
			}, 0, 4},
		{"stella_agent_total_partitions{}", "it is sharded", cluster.Cluster{},
			func(_ *watchedFleet, c *cluster.Cluster) { c.Config = sharded }, 0, 2},
		{"stella_agent_orphaned_partitions{}", "the shards get an owner", cluster.Cluster{Config: sharded}, own("a", "a"),
			2, 0},
		{"stella_agent_queue_depth{cluster_id=east,priority=high}", "tasks wait", cluster.Cluster{}, wait, 0, 3},
		{"stella_agent_queue_depth{cluster_id=east,priority=low}", "tasks wait", cluster.Cluster{}, wait, 0, 1},
		{"mainstay_cluster_queue_oldest_age_seconds{cluster_id=east}", "tasks wait", cluster.Cluster{}, wait, 0, 90},
		{"stella_agent_dead_letter_queue_depth{cluster_id=east}", "attempts are used up", cluster.Cluster{},
			count("dead_letter"), 0, 5},
		{"mainstay_cluster_reviews_waiting{cluster_id=east}", "a task needs a decision", cluster.Cluster{},
			count("review"), 0, 5},
		{"mainstay_cluster_reviews_waiting{cluster_id=east}", "runs and arrays need decisions",
			cluster.Cluster{}, count("blocked"), 0, 10},
		{"mainstay_events_quarantined{}", "an event cannot be dispatched", cluster.Cluster{},
			count("quarantined"), 0, 6},
		{"mainstay_events_unmatched{}", "nothing asks for an event", cluster.Cluster{}, count("unmatched"), 0, 6},
		{"mainstay_cluster_deployments{cluster_id=east,status=failed}", "a new version is not healthy",
			cluster.Cluster{}, keepsService(api.DeploymentFailed), 0, 1},
		{"mainstay_cluster_deployments_overdue{cluster_id=east}", "nobody ends a deployment", cluster.Cluster{},
			keepsService(api.DeploymentRunning), 0, 1},
		{"mainstay_cluster_services_short{cluster_id=east}", "an instance of two passes", cluster.Cluster{},
			keepsService(api.DeploymentFailed), 0, 1},
		{"mainstay_cluster_agents_desired{cluster_id=east}", "it is configured", cluster.Cluster{},
			func(_ *watchedFleet, c *cluster.Cluster) { c.Config.DesiredAgents = 3 }, 0, 3},
		{"mainstay_cluster_agents_desired{cluster_id=east}", "rules keep more than is configured", cluster.Cluster{},
			func(_ *watchedFleet, c *cluster.Cluster) {
				c.Config.DesiredAgents, c.Config.MaxAgents, c.Config.Scaling.Mode = 2, 20, api.ScalingAuto
				c.Scaling = &cluster.ScalingState{Target: new(10)}
			}, 0, 10},
		{"mainstay_cluster_agents_minimum{cluster_id=east}", "it is configured", cluster.Cluster{},
			func(_ *watchedFleet, c *cluster.Cluster) { c.Config.MinAgents = 2 }, 0, 2},
		{"mainstay_cluster_agents_lost{cluster_id=east}", "one is lost", cluster.Cluster{Members: members("a b")}, lose,
			0, 1},
		{"mainstay_cluster_pauses{cluster_id=east}", "a lane is paused", cluster.Cluster{},
			func(_ *watchedFleet, c *cluster.Cluster) { c.Pauses = []cluster.Pause{{Lane: "default"}} }, 0, 1},
		{"mainstay_cluster_brakes_engaged{cluster_id=east}", "many vanish at once", cluster.Cluster{},
			func(_ *watchedFleet, c *cluster.Cluster) { c.BrakeHolds = []cluster.BrakeHold{{Hub: "h1"}} }, 0, 1},
		{"mainstay_gateway_fleet_unread_clusters{}", "a cluster does not answer", cluster.Cluster{},
			func(f *watchedFleet, _ *cluster.Cluster) {
				f.executions[contract.ClusterWorkflowID("east")].query = func() (any, error) {
					return nil,
						errors.New("canary")
				}
			}, 0, 1},
		{"mainstay_gateway_fleet_reads_total{outcome=ok}", "it is read", cluster.Cluster{},
			func(*watchedFleet, *cluster.Cluster) {}, 1, 2},
	} {
		inBubble(t, c.series+" when "+c.why, func(t *testing.T) {
			f := watchFleet(t)
			state := c.state
			state.Config.Name = "east"
			f.withClusterState(&state)
			want := func(when string, want float64) {
				t.Helper()
				got, found := f.told(t)[c.series]
				require.Equal(t, want >= 0, found, when)
				require.InDelta(t, max(want, 0), got, .001, when)
			}
			want("before", c.from)
			c.change(f, &state)
			<-time.After(15 * time.Second) // the reading is not fresh any more
			want("after", c.to)
		})
	}
}

func lose(_ *watchedFleet, c *cluster.Cluster) { c.Members[0].Status = api.AgentOffline }

func become(s api.AgentStatus) func(*watchedFleet, *cluster.Cluster) {
	return func(_ *watchedFleet, c *cluster.Cluster) { c.Members[0].Status = s }
}

func lead(agent string, epoch int64) func(*watchedFleet, *cluster.Cluster) {
	return func(_ *watchedFleet, c *cluster.Cluster) { c.Leader, c.LeaderEpoch = agent, epoch }
}

func own(owners ...string) func(*watchedFleet, *cluster.Cluster) {
	return func(_ *watchedFleet, c *cluster.Cluster) {
		c.Shards = nil
		for _, o := range owners {
			c.Shards = append(c.Shards, cluster.ShardOwner{Owner: o, Epoch: 1})
		}
	}
}

func wait(f *watchedFleet, _ *cluster.Cluster) {
	f.backlogs = map[string]map[int32]int64{contract.ClusterLane("east"): {2: 3, 4: 1}}
}

// keepsService has a service of two with one instance that passes, whose newest deployment began long ago.
func keepsService(status api.DeploymentStatus) func(*watchedFleet, *cluster.Cluster) {
	return func(f *watchedFleet, _ *cluster.Cluster) {
		j := &job.Job{Name: "web"}
		j.Apply(api.JobDefinition{Job: "web", Type: api.JobService, Cluster: "east", Update: &api.JobUpdate{},
			Instances: &api.Instances{Count: new(2), Task: &api.TaskSpec{Type: "serve"}}}, "ann", time.Now().Add(-time.Hour))
		j.Deployment().Status = status
		j.Instances = []api.Instance{{Name: "0", Health: api.InstancePassing}, {Name: "1"}}
		e := open(contract.JobWorkflowID("web"), contract.JobWorkflow)
		e.info.Memo = &commonpb.Memo{Fields: map[string]*commonpb.Payload{
			contract.MemoJob: payload(contract.JobNote{Type: api.JobService, Count: 2, Deployment: status})}}
		e.info.SearchAttributes = &commonpb.SearchAttributes{IndexedFields: map[string]*commonpb.Payload{
			contract.AttrCluster.GetName(): payload("east")}}
		e.query = func() (any, error) { return j, nil }
		f.executions[e.info.GetExecution().GetWorkflowId()] = e
	}
}

func count(status string) func(*watchedFleet, *cluster.Cluster) {
	return func(f *watchedFleet, _ *cluster.Cluster) {
		f.counts = map[string]int64{status + " east": 5, status + " gone": 1}
	}
}

// An agent that was lost in one cluster and has joined another is told of once: as it is now.
func TestAgentsAreToldOfOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string][2]cluster.Cluster{
		"lost first":   {{Members: members("", "a")}, {Members: members("a")}},
		"lost in both": {{Members: members("", "a")}, {Members: members("", "a")}},
		"lost last":    {{Members: members("a")}, {Members: members("", "a")}},
	} {
		inBubble(t, name, func(t *testing.T) {
			f := watchFleet(t)
			c[0].Config.Name, c[1].Config.Name = "c1", "c2"
			f.withClusterState(&c[0])
			f.withClusterState(&c[1])
			want := 1.0
			if name == "lost in both" {
				want = 0
			}
			told := f.told(t)
			require.InDelta(t, want, told["stella_agent_up{agent_id=a}"], 0)
			require.InDelta(t, want, told["stella_agent_live_agents{}"], 0)
		})
	}
}

// What cannot be read is not told, rather than as it was long ago; a short outage changes nothing.
func TestFleetThatCannotBeRead(t *testing.T) {
	t.Parallel()
	inBubble(t, "", func(t *testing.T) {
		f := watchFleet(t)
		f.withCluster(api.ClusterConfig{Name: "east"}, members("a b")...)
		before := f.told(t)
		f.fail = errors.New("canary: away")
		require.Equal(t, before, f.told(t), "it is read every ten seconds at most")
		<-time.After(15 * time.Second)
		after := f.told(t)
		require.InDelta(t, 1, after["mainstay_gateway_fleet_reads_total{outcome=failed}"], 0)
		delete(after, "mainstay_gateway_fleet_reads_total{outcome=failed}")
		require.Equal(t, before, after)
		<-time.After(time.Minute)
		require.ElementsMatch(t, []string{"mainstay_gateway_fleet_reads_total{outcome=failed}",
			"mainstay_gateway_fleet_reads_total{outcome=ok}"},
			slices.Collect(maps.Keys(f.told(t))))
	})
}

// inBubble runs a test where time passes when everybody waits.
func inBubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, test)
	})
}

// Counting asks one question for all clusters when there is nothing to count.
func TestCountingIsCheap(t *testing.T) {
	t.Parallel()
	inBubble(t, "", func(t *testing.T) {
		f := watchFleet(t)
		for _, name := range []string{"c1", "c2", "c3"} {
			f.withCluster(api.ClusterConfig{Name: name})
		}
		f.told(t)
		require.Equal(t, 6, f.counted, "one for each kind")
		f.counts = map[string]int64{"review c1": 1}
		<-time.After(15 * time.Second)
		f.told(t)
		require.Equal(t, 6+7, f.counted, "and clusters only until all are found")
	})
}

package diagnosis

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/sdk/api"
)

func TestOfUnhandled(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	member := func(id string, s api.AgentStatus, types ...string) cluster.Member {
		return cluster.Member{AgentID: id, Status: s, StatusSince: since,
			AgentProfile: api.AgentProfile{MaxTasks: 2, TaskTypes: types}, Epoch: 1}
	}
	able := func(m cluster.Member, capabilities ...string) cluster.Member { m.Capabilities = capabilities; return m }
	echo, render := member("a", api.AgentOnline, "echo"), member("b", api.AgentOnline, "render", "echo")
	resize := UnhandledTask{Type: "resize", Since: since}
	pinned := UnhandledTask{Type: "resize", Agent: "a", Since: since}
	gpu := UnhandledTask{Type: "resize", Capabilities: []string{"gpu"}, Since: since}
	const offered = ", or cancel them: they are offered again and again until they expire."
	for name, c := range map[string]struct {
		cluster         cluster.Cluster
		tasks           []UnhandledTask
		what, why, todo []string
	}{
		"nothing waits": {cluster: cluster.Cluster{Members: []cluster.Member{echo}}},
		"an agent came that handles it": {cluster: cluster.Cluster{Members: []cluster.Member{echo,
			member("r", api.AgentOnline, "resize")}}, tasks: []UnhandledTask{resize}},
		"one that may be back": {cluster: cluster.Cluster{Members: []cluster.Member{echo,
			member("r", api.AgentSuspect, "resize")}}, tasks: []UnhandledTask{resize}},
		"one that handles any": {cluster: cluster.Cluster{Members: []cluster.Member{echo,
			member("r", api.AgentOnline)}}, tasks: []UnhandledTask{resize}},
		"no agent at all": {cluster: cluster.Cluster{Members: []cluster.Member{member("a",
			api.AgentOffline, "echo")}}, tasks: []UnhandledTask{resize}},
		"its agent is away": {cluster: cluster.Cluster{Members: []cluster.Member{member("a",
			api.AgentOffline, "echo"), render}}, tasks: []UnhandledTask{pinned}},
		"nobody has the capability": {cluster: cluster.Cluster{Members: []cluster.Member{echo}},
			tasks: []UnhandledTask{gpu}},
		"a capable one handles it": {cluster: cluster.Cluster{Members: []cluster.Member{echo,
			able(member("r", api.AgentOnline, "resize"), "gpu")}}, tasks: []UnhandledTask{gpu}},
		"the leader handles it":            {cluster: cluster.Cluster{Config: api.ClusterConfig{ReplicationMode: api.ActivePassive}, Leader: "r", LeaderEpoch: 2, Members: []cluster.Member{echo, member("r", api.AgentOnline, "resize")}}, tasks: []UnhandledTask{resize}},
		"an owner of a shard may be right": {cluster: cluster.Cluster{Config: api.ClusterConfig{ReplicationMode: api.Sharded}, Members: []cluster.Member{echo, member("r", api.AgentOnline, "resize")}}, tasks: []UnhandledTask{resize}},
		"one": {
			cluster: cluster.Cluster{Members: []cluster.Member{echo}}, tasks: []UnhandledTask{resize},
			what: []string{"1 task of type resize in cluster c: no agent handles it"},
			why:  []string{"agent a handles echo"},
			todo: []string{"Start an agent that handles it" + offered},
		},
		"several, of two types": {
			cluster: cluster.Cluster{Members: []cluster.Member{echo, render}},
			tasks: []UnhandledTask{{Type: "resize", Since: since.Add(time.Minute)}, {Type: "crop", Since: since},
				resize, {Type: "echo"}, {Type: "resize"}},
			what: []string{"3 tasks of type resize in cluster c: no agent handles it",
				"1 task of type crop in cluster c: no agent handles it"},
			why: []string{"2 agents could be given it, and handle echo, render",
				"2 agents could be given it, and handle echo, render"},
			todo: []string{"Start an agent that handles it" + offered, "Start an agent that handles it" + offered},
		},
		"many other types": {
			cluster: cluster.Cluster{Members: []cluster.Member{member("a", api.AgentOnline, "t1", "t2", "t3", "t4", "t5",
				"t6", "t7", "t8", "t9", "u1")}},
			tasks: []UnhandledTask{resize},
			what:  []string{"1 task of type resize in cluster c: no agent handles it"},
			why:   []string{"agent a handles t1, t2, t3, t4, t5, t6, t7, t8 and 2 more"},
			todo:  []string{"Start an agent that handles it" + offered},
		},
		"who would is offline": {
			cluster: cluster.Cluster{Members: []cluster.Member{echo, member("r", api.AgentOffline, "resize")}},
			tasks:   []UnhandledTask{resize},
			what:    []string{"1 task of type resize in cluster c: no agent handles it"},
			why:     []string{"agent r would, but it is offline since 2026-11-21T12:00:00Z"},
			todo:    []string{"Start an agent that handles it" + offered},
		},
		"pinned": {
			cluster: cluster.Cluster{Members: []cluster.Member{echo, member("r", api.AgentOnline, "resize")}},
			tasks:   []UnhandledTask{pinned},
			what:    []string{"1 task of type resize in cluster c: agent a does not handle it"},
			why:     []string{"agent a handles echo"},
			todo:    []string{"Give agent a a handler for it, or cancel them: they are offered to it again and again until they expire."},
		},
		"pinned, with a capability": {
			cluster: cluster.Cluster{Members: []cluster.Member{member("a", api.AgentOnline, "resize")}},
			tasks:   []UnhandledTask{{Type: "resize", Agent: "a", Capabilities: []string{"gpu"}, Since: since}},
			what:    []string{"1 task of type resize in cluster c: agent a does not handle it, or lacks the required capability gpu"},
			why:     []string{"agent a handles resize"},
			todo:    []string{"Give agent a a handler for it, or cancel them: they are offered to it again and again until they expire."},
		},
		"capable, but of other types": {
			cluster: cluster.Cluster{Members: []cluster.Member{able(echo, "gpu"),
				member("r", api.AgentOnline, "resize")}},
			tasks: []UnhandledTask{gpu},
			what:  []string{"1 task of type resize in cluster c: no agent handles it and has the required capability gpu"},
			why:   []string{"agent a handles echo"},
			todo:  []string{"Start an agent that handles it" + offered},
		},
		"only a standby handles it": {
			cluster: cluster.Cluster{Config: api.ClusterConfig{ReplicationMode: api.ActivePassive}, Leader: "a",
				LeaderEpoch: 2, Members: []cluster.Member{echo, member("r", api.AgentOnline, "resize")}},
			tasks: []UnhandledTask{resize},
			what:  []string{"1 task of type resize in cluster c: the leader a does not handle it"},
			why:   []string{"agent r would, but it does not lead"},
			todo:  []string{"Give the leader a a handler for it, or cancel them: they are offered to it again and again until they expire."},
		},
		"no owner of a shard": {
			cluster: cluster.Cluster{Config: api.ClusterConfig{ReplicationMode: api.Sharded},
				Members: []cluster.Member{echo, render}},
			tasks: []UnhandledTask{resize},
			what:  []string{"1 task of type resize in cluster c: no agent handles it"},
			why:   []string{"2 agents could be given it, and handle echo, render"},
			todo:  []string{"Start an agent that handles it" + offered},
		},
		"it fits on no agent": {
			cluster: cluster.Cluster{Members: []cluster.Member{echo, render}},
			tasks: []UnhandledTask{{Type: "echo", Agent: "a", Since: since,
				Place: api.Demand{Resources: api.Amounts{CPU: "2"}}}},
			what: []string{"1 task of type echo in cluster c: no agent that handles it has what it asks for"},
			why:  []string{"it lacks resources that it tells of on 1 agent"},
			todo: []string{"Start an agent that has it" + offered},
		},
		"nobody ends the processes of a command": {
			cluster: cluster.Cluster{Members: []cluster.Member{echo, member("r", api.AgentOnline, "exec")}},
			tasks:   []UnhandledTask{{Type: "exec", Safety: api.Fenced, Since: since}},
			what:    []string{"1 task of type exec in cluster c: no agent that handles it ends all processes of a command when it is lost, as a task of type exec that is fenced needs"},
			why:     []string{"agents of this release on Linux do"},
			todo:    []string{"Start an agent of this release on Linux, or submit such work as idempotent."},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.cluster.Config.Name = "c"
			var what, why, todo []string
			if len(c.tasks) > 0 && len(c.what) == 0 {
				require.Empty(t, WhyUnhandled(&c.cluster, &c.tasks[0]))
			}
			for _, p := range OfUnhandled(&c.cluster, c.tasks) {
				require.Equal(t, api.SeverityWarning, p.Severity)
				require.Equal(t, api.ProblemUnhandled, p.Kind)
				require.Equal(t, since, *p.Since, "the first of them")
				what, why, todo = append(what, p.What), append(why, p.Why), append(todo, p.Do)
			}
			require.Equal(t, c.what, what)
			require.Equal(t, c.why, why)
			require.Equal(t, c.todo, todo)
			if len(what) > 0 {
				_, words, _ := strings.Cut(what[0], ": ")
				require.Equal(t, words+"; "+why[0], WhyUnhandled(&c.cluster, &c.tasks[0]))
			}
		})
	}
}

func TestBlocked(t *testing.T) {
	t.Parallel()
	member := cluster.Member{AgentID: "a", Status: api.AgentOnline, AgentProfile: api.AgentProfile{
		TaskTypes: []string{"build", "exec"}, Capabilities: []string{"gpu"},
		Resources: &api.Inventory{Amounts: api.Amounts{Memory: "2Gi"}}}}
	suspect, lost := member, member
	suspect.Status, lost.Status = api.AgentSuspect, api.AgentOffline
	big := api.Demand{Resources: api.Amounts{Memory: "4Gi"}}
	for name, c := range map[string]struct {
		member cluster.Member
		task   UnhandledTask
		want   bool
	}{
		"can":              {member, UnhandledTask{Type: "build", Capabilities: []string{"gpu"}}, false},
		"suspect":          {suspect, UnhandledTask{Type: "build"}, false},
		"lost":             {lost, UnhandledTask{Type: "build"}, true},
		"type":             {member, UnhandledTask{Type: "sing"}, true},
		"capability":       {member, UnhandledTask{Type: "build", Capabilities: []string{"tpu"}}, true},
		"its agent":        {member, UnhandledTask{Type: "build", Agent: "a"}, false},
		"another agent":    {member, UnhandledTask{Type: "build", Agent: "b"}, true},
		"too big":          {member, UnhandledTask{Type: "build", Place: big}, true},
		"ends no commands": {member, UnhandledTask{Type: "exec", Safety: api.Fenced}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, Blocked(&cluster.Cluster{Members: []cluster.Member{c.member}}, &c.task))
		})
	}
	leader := member
	leader.AgentID, leader.Capabilities = "l", nil
	c := cluster.Cluster{Config: api.ClusterConfig{ReplicationMode: api.ActivePassive}, Leader: "l", LeaderEpoch: 1,
		Members: []cluster.Member{member, leader}}
	require.True(t, Blocked(&c, &UnhandledTask{Type: "build", Capabilities: []string{"gpu"}}), "the leader cannot")
	require.False(t, Blocked(&c, &UnhandledTask{Type: "build"}))
}

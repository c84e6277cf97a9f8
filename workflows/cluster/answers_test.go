package cluster_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/workflows/workflowtest"
	"mainstay.dev/sdk/api"
)

// sized is an answer that adds its length to those of the same workflow task.
type sized struct {
	workflowtest.Answer
	t     *testing.T
	run   *clusterRun
	bytes map[time.Time]int
}

func (s *sized) Complete(value any, err error) {
	s.Answer.Complete(value, err)
	data, failed := json.Marshal(value)
	require.NoError(s.t, failed)
	s.bytes[s.run.Now()] += len(data)
}

// longID is an id as long as ids may be, which cannot be compressed.
func longID(i int) string {
	hash := sha256.Sum256([]byte(strconv.Itoa(i)))
	return hex.EncodeToString(hash[:])[:api.MaxIDLength]
}

// largest is a cluster with as many members and targets as one may have.
func largest() contract.ClusterInput {
	c := &cluster.Cluster{Config: api.ClusterConfig{Name: "default", MaxAgents: api.MaxMembers}.WithDefaults()}
	for i := range api.MaxMembers {
		c.Members = append(c.Members, cluster.Member{AgentID: longID(i), Instance: longID(-i), Epoch: int64(i + 1),
			Hub: "h1", Status: api.AgentOnline, AgentProfile: api.AgentProfile{MaxTasks: 1, Host: longID(i * i)}})
	}
	slices.SortFunc(c.Members, func(a, b cluster.Member) int { return strings.Compare(a.AgentID, b.AgentID) })
	var targets []string
	for i := range api.MaxTargets {
		targets = append(targets, longID(-i))
	}
	_, _ = c.Targets.Change(targets, nil)
	return contract.ClusterInput{Config: c.Config, State: c}
}

// Temporal takes ten updates of a workflow at a time and 4 MiB of a workflow task, and terminates the workflow beyond.
func TestAnswersFitIntoAWorkflowTask(t *testing.T) {
	t.Parallel()
	const atOnce, most = 10, 4 << 20
	config := api.ClusterConfig{Name: "default"}
	for name, arg := range map[string]any{
		contract.PauseUpdate.Name:           contract.PauseRequest{Reason: "disks"},
		contract.ResumeUpdate.Name:          contract.PauseRequest{},
		contract.ConfigureUpdate.Name:       contract.ConfigureRequest{ClusterConfig: config},
		contract.TargetsUpdate.Name:         contract.TargetsRequest{Remove: []string{longID(0)}},
		contract.RebalanceUpdate.Name:       contract.RebalanceRequest{DryRun: true},
		contract.CloseAgentLanesUpdate.Name: []cluster.OpenLane{},
		contract.MissUpdate.Name:            contract.Missing{Hub: "h1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run, bytes := newCluster(t), map[time.Time]int{}
			var answers []*sized
			run.at(time.Second, func() {
				for range atOnce {
					answers = append(answers, &sized{t: t, run: run, bytes: bytes})
					run.UpdateWorkflow(name, "", answers[len(answers)-1], arg)
				}
			})
			run.at(time.Minute, func() { run.update(contract.DeleteUpdate.Name, contract.DeleteRequest{Force: true}) })
			run.ExecuteWorkflow(contract.ClusterWorkflow, largest())
			require.NoError(t, run.GetWorkflowError())
			for _, a := range answers {
				require.NoError(t, a.Err)
			}
			for at, n := range bytes {
				require.LessOrEqual(t, n, most, at)
			}
		})
	}
}

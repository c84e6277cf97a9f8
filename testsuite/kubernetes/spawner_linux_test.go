package kubernetes

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/spawner"
	"mainstay.dev/mainstay/internal/spawner/kubernetes"
	"mainstay.dev/sdk/api"
)

var spec = cluster.SpawnSpec{ID: "c_1-0a", Cluster: "c_1", Resources: api.Resources{CPU: "500m", Memory: "64Mi"},
	Kubernetes: api.KubernetesSpawn{PriorityClass: "low"}}

const podName = "mainstay-c-1-0a"

// patch has a pod's status be what its kubelet would make it.
func (s *Servers) patch(t *testing.T, status string) {
	t.Helper()
	s.Kubectl(t, "", "patch", "pod", podName, "--subresource=status", "-p", `{"status":`+status+`}`)
}

// spawnerOf is a spawner with the rights of a service account, by default those of deploy/kubernetes/spawner.
func (s *Servers) spawnerOf(t *testing.T, account string, change func(o *kubernetes.Options)) *kubernetes.Kubernetes {
	t.Helper()
	o := kubernetes.Options{Kubeconfig: s.KubeconfigOf(t, account), Options: spawner.Options{Name: "rack", Image: "agent:1",
		StopGrace: 2 * time.Second, JoinToken: func(cluster.SpawnSpec) (string, error) { return "token", nil }}}
	if change != nil {
		change(&o)
	}
	k, err := kubernetes.New(o)
	require.NoError(t, err)
	return k
}

func TestTheSpawnerInKubernetes(t *testing.T) {
	t.Parallel()
	s := Start(t)
	s.StartFakeNodes(t)
	k := s.spawnerOf(t, "spawner", nil)
	start := func(t *testing.T, k *kubernetes.Kubernetes) cluster.Spawned {
		t.Helper()
		spawned, err := k.Spawn(t.Context(), spec)
		require.NoError(t, err)
		return spawned
	}
	empty := func(t *testing.T) {
		t.Helper()
		require.NoError(t, spawner.TerminateAll(t.Context(), k, true))
		require.NoError(t, k.Terminate(t.Context(), spec.ID, true))
		require.Eventually(t, func() bool { return len(s.Left(t)) == 0 }, time.Minute, time.Second, "nothing leaks")
	}
	template := func(text string) func(o *kubernetes.Options) {
		return func(o *kubernetes.Options) { o.PodTemplate = s.Write(t, "template.yaml", text) }
	}
	for name, run := range map[string]func(t *testing.T){
		"from 0 to 5 and back, each asked for by two": func(t *testing.T) {
			var wg sync.WaitGroup
			for i := range 10 {
				wg.Go(func() {
					each := spec
					each.ID = fmt.Sprintf("c_1-%d", i%5)
					_, err := []*kubernetes.Kubernetes{k, s.spawnerOf(t, "spawner", nil)}[i%2].Spawn(t.Context(), each)
					for err != nil && !errors.Is(err, spawner.ErrRefused) && t.Context().Err() == nil {
						_, err = k.Spawn(t.Context(), each) // the other was first
					}
					assert.NoError(t, err)
				})
			}
			wg.Wait()
			list, err := k.List(t.Context())
			require.NoError(t, err)
			require.Len(t, list, 5)
			require.Len(t, s.Left(t), 10, "a pod and a secret each")
		},
		"started anew": func(t *testing.T) {
			start(t, k)
			before := s.Kubectl(t, "", "get", "pod", podName, "-o", "jsonpath={.metadata.uid}")
			require.NoError(t, k.Terminate(t.Context(), spec.ID, true))
			start(t, k)
			require.NotEqual(t, before, s.Kubectl(t, "", "get", "pod", podName, "-o", "jsonpath={.metadata.uid}"))
		},
		"the spawner dies between create and start": func(t *testing.T) {
			dead := s.spawnerOf(t, "spawner", func(o *kubernetes.Options) {
				template("metadata: {annotations: {held: for its files}}")(o)
				o.JoinToken = func(cluster.SpawnSpec) (string, error) { return "", errors.New("it is dead") }
			})
			_, err := dead.Spawn(t.Context(), spec)
			require.ErrorContains(t, err, "it is dead")
			require.Equal(t, []string{"pod/" + podName}, s.Left(t))
			started := make(chan error)
			go func() {
				_, err := k.Spawn(t.Context(), spec)
				started <- err
			}()
			require.Eventually(t, func() bool { return len(s.Left(t)) == 2 }, time.Minute, time.Second, "it has its files")
			s.Kubectl(t, "", "annotate", "pod", podName, "held-")
			require.NoError(t, <-started)
			list, err := k.List(t.Context())
			require.NoError(t, err)
			require.Len(t, list, 1)
		},
		"quota": func(t *testing.T) {
			s.Kubectl(t, "", "create", "quota", "two", "--hard=pods=1")
			defer s.Kubectl(t, "", "delete", "quota", "two")
			s.Kubectl(t, "", "wait", "--for=jsonpath={.status.hard.pods}=1", "quota/two")
			start(t, k)
			another := spec
			another.ID = "c_1-0b"
			_, err := k.Spawn(t.Context(), another)
			require.ErrorIs(t, err, spawner.ErrRefused)
			require.ErrorContains(t, err, "exceeded quota: two, requested: pods=1, used: pods=1, limited: pods=1")
		},
		"forbidden": func(t *testing.T) {
			_, err := s.spawnerOf(t, "stranger", nil).Spawn(t.Context(), spec)
			require.ErrorIs(t, err, spawner.ErrRefused)
			require.ErrorContains(t, err, `User "system:serviceaccount:mainstay:stranger" cannot get resource "pods"`)
		},
		"a node that does not answer": func(t *testing.T) {
			lost := s.spawnerOf(t, "spawner", template("spec: {nodeName: lost}"))
			go func() {
				assert.Eventually(t, func() bool { return len(s.Left(t)) == 2 }, time.Minute, time.Second)
				s.patch(t, `{"phase":"Running"}`)
			}()
			require.Equal(t, "lost", start(t, lost).Host)
			err := k.Terminate(t.Context(), spec.ID, false)
			require.ErrorContains(t, err, "the node lost has not confirmed the end of the pod of c_1-0a")
			s.Kubectl(t, "", "delete", "node", "lost")
			require.Eventually(t, func() bool { return k.Terminate(t.Context(), spec.ID, false) == nil }, 3*time.Minute,
				time.Second, "the controllers forget the pods of a deleted node")
		},
	} {
		t.Run(name, func(t *testing.T) {
			defer empty(t)
			run(t)
		})
	}
	reports := make(chan api.SpawnEnd, 10)
	go k.Watch(t.Context(), func(end api.SpawnEnd) { reports <- end })
	status := func(status string) func() { return func() { s.patch(t, status) } }
	killed := `{"phase":"Failed","containerStatuses":[{"name":"agent","image":"agent:1","state":{"running":null,` +
		`"terminated":{"exitCode":137,"reason":"%s","finishedAt":"2026-01-02T03:04:05Z"}}}]}`
	for why, end := range map[string]func(){
		"its container was ended by SIGKILL":                               status(fmt.Sprintf(killed, "Error")),
		"its container was killed: it used more than its 64 MiB of memory": status(fmt.Sprintf(killed, "OOMKilled")),
		"its pod was ended: Evicted: The node was low on resource: memory.": status(
			`{"phase":"Failed","reason":"Evicted","message":"The node was low on resource: memory."}`),
		"its pod was ended: EvictionByEvictionAPI: Eviction API: evicting": func() { s.Evict(t, podName) },
		"its pod was deleted: its container was ended by SIGTERM": func() {
			s.Kubectl(t, "", "delete", "pod", podName)
		},
		"its pod was deleted": func() { s.Kubectl(t, "", "delete", "pod", podName, "--force") },
	} {
		t.Run(why, func(t *testing.T) {
			defer empty(t)
			start(t, k)
			end()
			report := <-reports
			require.Equal(t, []string{why, spec.ID, spec.Cluster}, []string{report.Reason, report.AgentID, report.Cluster})
			another := spec
			another.ID = "c_1-0b"
			_, err := k.Spawn(t.Context(), another)
			require.NoError(t, err, "its replacement")
			require.Empty(t, reports, "an end is reported once")
		})
	}
	t.Run("the API is away for 30 s", func(t *testing.T) {
		start(t, k)
		s.StopAPI()
		for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
			_, err := k.Spawn(t.Context(), spec)
			require.Error(t, err)
			require.NotErrorIs(t, err, spawner.ErrRefused)
			require.Error(t, k.Terminate(t.Context(), spec.ID, true))
			require.NoError(t, spawner.Pause(t.Context(), time.Second))
		}
		s.StartAPI(t)
		require.Eventually(t, func() bool {
			list, err := k.List(t.Context())
			return err == nil && len(list) == 1
		}, time.Minute, time.Second)
		start(t, k)
		require.Len(t, s.Left(t), 2, "nothing is doubled")
		s.Kubectl(t, "", "delete", "pod", podName)
		require.Contains(t, (<-reports).Reason, "its pod was deleted", "the spawner still watches")
		empty(t)
	})
}

package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/spawner"
	"mainstay.dev/sdk/api"
)

// spawnerOf is a spawner of pods in a cluster.
func spawnerOf(t *testing.T, c *apiServer, change func(o *Options)) *Kubernetes {
	t.Helper()
	o := Options{Kubeconfig: c.kubeconfig(t), Options: spawner.Options{Name: "rack", Image: "agent:1",
		HubURLs: []string{"http://hub:8080"}, StopGrace: 2 * time.Second,
		JoinToken: func(spec cluster.SpawnSpec) (string, error) { return "token-of-" + spec.ID, nil }}}
	if change != nil {
		change(&o)
	}
	k, err := New(o)
	require.NoError(t, err)
	return k
}

var spec = cluster.SpawnSpec{ID: "c_1-0a", Cluster: "c_1", Environment: map[string]string{"COLOUR": "$(blue)"},
	Resources:  api.Resources{CPU: "500m", Memory: "64Mi", Storage: "1Gi"},
	Kubernetes: api.KubernetesSpawn{Pull: api.PullNever, PriorityClass: "low"}}

const podName = "mainstay-c-1-0a"

func TestAPodIsConfinedAndGetsItsTokenAsAFile(t *testing.T) {
	t.Parallel()
	template := filepath.Join(t.TempDir(), "pod.yaml")
	require.NoError(t, os.WriteFile(template, []byte(`
metadata: {labels: {team: blue}}
spec:
  nodeSelector: {disk: fast}
  securityContext: {runAsUser: 1000}
  containers: [{name: sidecar, image: "side:1"}, {name: agent, env: [{name: TZ, value: UTC}]}]
`), 0o600))
	c := newCluster(t)
	k := spawnerOf(t, c, func(o *Options) {
		o.PodTemplate, o.HubCA = template, []byte("PEM")
		o.Command = func(cluster.SpawnSpec) []string { return []string{"", "--id", "$x"} }
	})
	spawned, err := k.Spawn(t.Context(), spec)
	require.NoError(t, err)
	require.Equal(t, []any{spec.ID, spec.Cluster, "rack", api.PlatformKubernetes, "agents/" + podName, "node-1"},
		[]any{spawned.ID, spawned.Cluster, spawned.Spawner, spawned.Platform, spawned.Handle, spawned.Host})

	pod, secret := c.pods[podName], c.secrets[podName]
	text, err := json.Marshal(pod)
	require.NoError(t, err)
	require.NotContains(t, string(text), "token-of-", "the token is nowhere but in the secret")
	require.Equal(t, "token-of-"+spec.ID, string(secret.Data[spawner.TokenFile]))
	require.Equal(t, "PEM", string(secret.Data[spawner.CAFile]))
	require.Equal(t, []any{"Pod", podName, pod.UID}, []any{secret.OwnerReferences[0].Kind,
		secret.OwnerReferences[0].Name, secret.OwnerReferences[0].UID}, "it goes with the pod")

	require.Equal(t, "blue", pod.Labels["team"])
	require.Equal(t, "rack", pod.Labels[labelSpawner])
	s := pod.Spec
	require.Equal(t, corev1.RestartPolicyNever, s.RestartPolicy)
	require.Equal(t, []any{"fast", "low", int64(2), int64(1000), int64(filesGroup), true, false},
		[]any{s.NodeSelector["disk"], s.PriorityClassName, *s.TerminationGracePeriodSeconds, *s.SecurityContext.RunAsUser,
			*s.SecurityContext.FSGroup, *s.SecurityContext.RunAsNonRoot, *s.AutomountServiceAccountToken})
	require.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, s.SecurityContext.SeccompProfile.Type)
	agent := s.Containers[1]
	require.Equal(t, []any{"agent", "agent:1", corev1.PullNever}, []any{agent.Name, agent.Image, agent.ImagePullPolicy})
	require.Empty(t, agent.Command)
	require.Equal(t, []string{"--id", "$$x"}, agent.Args, "Kubernetes replaces nothing in it")
	require.Equal(t, []any{true, false, []corev1.Capability{"ALL"}}, []any{*agent.SecurityContext.ReadOnlyRootFilesystem,
		*agent.SecurityContext.AllowPrivilegeEscalation, agent.SecurityContext.Capabilities.Drop})
	require.Equal(t, []string{"500m", "64Mi", "64Mi", "1Gi"}, []string{agent.Resources.Limits.Cpu().String(),
		agent.Resources.Limits.Memory().String(), agent.Resources.Requests.Memory().String(),
		s.Volumes[0].EmptyDir.SizeLimit.String()})
	env := map[string]string{}
	for _, e := range agent.Env {
		env[e.Name] = e.Value
	}
	require.Equal(t, []string{"UTC", "$$(blue)", spec.ID, "rack", "/run/mainstay/join-token", "/run/mainstay/ca.pem"},
		[]string{env["TZ"], env["COLOUR"], env[spawner.EnvAgentID], env[spawner.EnvSpawner], env[spawner.EnvJoinTokenFile],
			env["MAINSTAY_CA"]})
}

// TestAnswersThatAreLostDoubleNothing loses the answer of each request in turn, and starts again as the caller does.
func TestAnswersThatAreLostDoubleNothing(t *testing.T) {
	t.Parallel()
	for _, lost := range []string{"POST pods", "POST secrets", "GET pods/" + podName} {
		t.Run(lost, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			var once atomic.Bool
			c.loses = func(r *http.Request) bool {
				return strings.HasPrefix(lost, r.Method) && strings.HasSuffix(r.URL.Path, strings.Fields(lost)[1]) &&
					len(c.pods) > 0 && !once.Swap(true)
			}
			_, err := spawnerOf(t, c, nil).Spawn(t.Context(), spec)
			require.NotErrorIs(t, err, spawner.ErrRefused)
			require.True(t, err != nil || lost == "GET pods/"+podName, "a question is repeated at once")
			require.True(t, once.Load())
			next := spawnerOf(t, c, nil) // the process died too
			spawned, err := next.Spawn(t.Context(), spec)
			require.NoError(t, err)
			list, err := next.List(t.Context())
			require.NoError(t, err)
			require.Equal(t, []cluster.Spawned{spawned}, list)
			pods, secrets := c.names()
			require.Equal(t, [][]string{{podName}, {podName}}, [][]string{pods, secrets})
			require.NoError(t, next.Terminate(t.Context(), spec.ID, true))
			pods, secrets = c.names()
			require.Empty(t, append(pods, secrets...), "nothing is left")
			require.NoError(t, next.Terminate(t.Context(), spec.ID, true), "what is not there has ended")
		})
	}
}

// A kubelet shows the end of a deleted pod for a while.
func TestAnAgentIsStartedAnew(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	k := spawnerOf(t, c, nil)
	_, err := k.Spawn(t.Context(), spec)
	require.NoError(t, err)
	c.shows = 2
	require.NoError(t, k.Terminate(t.Context(), spec.ID, true))
	_, err = k.Spawn(t.Context(), spec)
	require.NoError(t, err)
}

func TestWhatTheClusterSaysIsWhyNothingStarts(t *testing.T) {
	t.Parallel()
	forbidden := func(why string) func(*http.Request) *apierrors.StatusError {
		return func(r *http.Request) *apierrors.StatusError {
			if r.Method != http.MethodPost {
				return nil
			}
			return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, podName, errors.New(why))
		}
	}
	waiting := func(reason, message string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: agentContainer, State: corev1.ContainerState{
				Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}}
		}
	}
	for want, c := range map[string]struct {
		refuses func(*http.Request) *apierrors.StatusError
		runs    func(*corev1.Pod)
	}{
		"exceeded quota: agents": {refuses: forbidden("exceeded quota: agents, requested: pods=1, used: pods=2")},
		"cannot create resource": {refuses: forbidden(`User "x" cannot create resource "pods"`)},
		"its pod does not run: ImagePullBackOff: Back-off pulling": {runs: waiting("ImagePullBackOff",
			`Back-off pulling image "agent:1"`)},
		"CreateContainerConfigError: container has runAsNonRoot": {runs: waiting("CreateContainerConfigError",
			"container has runAsNonRoot and image will run as root")},
		"its container ended with exit code 3: its last words": {runs: ends(corev1.PodFailed,
			corev1.ContainerStateTerminated{ExitCode: 3})},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			api := newCluster(t)
			api.refuses, api.runs = c.refuses, c.runs
			_, err := spawnerOf(t, api, nil).Spawn(t.Context(), spec)
			require.ErrorIs(t, err, spawner.ErrRefused)
			require.ErrorContains(t, err, want)
		})
	}
}

func TestHowAPodEnded(t *testing.T) {
	t.Parallel()
	for want, end := range map[string]func(pod *corev1.Pod){
		"its container was killed: it used more than its 64 MiB of memory": ends(corev1.PodFailed,
			corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}),
		"its container was ended by SIGKILL": ends(corev1.PodFailed, corev1.ContainerStateTerminated{ExitCode: 137}),
		"its pod was ended: Evicted: The node was low on resource: memory.": func(pod *corev1.Pod) {
			ends(corev1.PodFailed, corev1.ContainerStateTerminated{ExitCode: 137})(pod)
			pod.Status.Reason, pod.Status.Message = "Evicted", "The node was low on resource: memory."
		},
		"its pod was ended: EvictionByEvictionAPI: Eviction API: evicting": func(pod *corev1.Pod) {
			ends(corev1.PodSucceeded, corev1.ContainerStateTerminated{})(pod)
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue,
				Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting"}}
		},
		"its pod was deleted: its container was ended by SIGTERM": func(pod *corev1.Pod) {
			pod.DeletionTimestamp = new(metav1.Now())
			ends(corev1.PodFailed, corev1.ContainerStateTerminated{ExitCode: 143})(pod)
		},
		"its pod was deleted": nil,
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			k := spawnerOf(t, c, nil)
			_, err := k.Spawn(t.Context(), spec)
			require.NoError(t, err)
			reports := make(chan api.SpawnEnd, 10)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			go k.Watch(ctx, func(end api.SpawnEnd) { reports <- end })
			require.Eventually(t, func() bool { return c.asked("GET pods") }, time.Minute, time.Millisecond)
			if end != nil {
				c.set(podName, end)
			} else {
				c.remove(podName)
			}
			report := <-reports
			require.Equal(t, []string{want, spec.ID, spec.Cluster}, []string{report.Reason, report.AgentID, report.Cluster})
			list, err := k.List(t.Context())
			require.NoError(t, err)
			require.Empty(t, list)
			if end != nil {
				c.set(podName, func(*corev1.Pod) {}) // seen again
				c.remove(podName)
			}
			other := spec
			other.ID = "c_1-0b"
			_, err = k.Spawn(t.Context(), other)
			require.NoError(t, err)
			require.NoError(t, k.Terminate(t.Context(), other.ID, true))
			require.Empty(t, reports, "an end is reported once, and one that was asked for not at all")
		})
	}
}

// A pod that has ended is deleted before the watch has seen its end.
func TestTheEndOfADeletedPodIsReported(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	k := spawnerOf(t, c, nil)
	_, err := k.Spawn(t.Context(), spec)
	require.NoError(t, err)
	c.mu.Lock()
	c.refuses = func(r *http.Request) *apierrors.StatusError {
		if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, "/pods") {
			return nil
		}
		return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("not now"))
	}
	c.mu.Unlock()
	reports := make(chan api.SpawnEnd, 10)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go k.Watch(ctx, func(end api.SpawnEnd) { reports <- end })
	require.Eventually(t, func() bool { return c.asked("GET pods") }, time.Minute, time.Millisecond)
	c.set(podName, ends(corev1.PodFailed, corev1.ContainerStateTerminated{ExitCode: 137}))
	require.NoError(t, k.Terminate(t.Context(), spec.ID, true))
	require.Len(t, reports, 1)
	report := <-reports
	require.Equal(t, "its container was ended by SIGKILL", report.Reason)
	require.True(t, report.Gone)
}

func TestALostNodeDoesNotProveAnEnd(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.runs = func(pod *corev1.Pod) {
		runs(pod)
		pod.Spec.NodeName, pod.Status.Reason, pod.Status.Message = "lost", "NodeLost", "Node lost is unresponsive"
	}
	k := spawnerOf(t, c, nil)
	_, err := k.Spawn(t.Context(), spec)
	require.NoError(t, err)
	err = k.Terminate(t.Context(), spec.ID, false)
	require.ErrorContains(t, err, "the node lost has not confirmed the end of the pod of c_1-0a: NodeLost: Node lost is")
	c.remove(podName) // the node is deleted
	require.NoError(t, k.Terminate(t.Context(), spec.ID, false))
}

func TestPodsThatNobodyWaitsForAreDeleted(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.runs = ends(corev1.PodFailed, corev1.ContainerStateTerminated{ExitCode: 3})
	k := spawnerOf(t, c, func(o *Options) { o.Keep = time.Millisecond })
	_, err := k.Spawn(t.Context(), spec)
	require.ErrorIs(t, err, spawner.ErrRefused)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	reports := make(chan api.SpawnEnd, 10)
	go k.Watch(ctx, func(end api.SpawnEnd) { reports <- end })
	<-reports
	require.Eventually(t, func() bool { pods, secrets := c.names(); return len(pods)+len(secrets) == 0 }, time.Minute,
		10*time.Millisecond)
}

func TestAPodOfAnotherSpawnerIsLeftAlone(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	_, err := spawnerOf(t, c, func(o *Options) { o.Name = "other" }).Spawn(t.Context(), spec)
	require.NoError(t, err)
	k := spawnerOf(t, c, nil)
	_, err = k.Spawn(t.Context(), spec)
	require.ErrorIs(t, err, spawner.ErrRefused)
	require.NoError(t, k.Terminate(t.Context(), spec.ID, false))
	pods, _ := c.names()
	require.Equal(t, []string{podName}, pods)
}

package kubernetes

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/spawner"
)

// servers are those of a real Kubernetes on this machine. Its nodes are kwok's, so no container runs.
type servers struct {
	bin, home, url string
	api            []string // the command line of the API's server
	stopAPI        func()
}

func startServers(t *testing.T) *servers {
	t.Helper()
	s := &servers{bin: os.Getenv("MAINSTAY_KUBERNETES"), home: t.TempDir()}
	if s.bin == "" {
		t.Skip("no Kubernetes: MAINSTAY_KUBERNETES names no folder with what spawner/kubernetes/servers.sh builds")
	}
	ports := make([]string, 3)
	for i := range ports {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer listener.Close()
		_, ports[i], err = net.SplitHostPort(listener.Addr().String())
		require.NoError(t, err)
		require.NoError(t, listener.Close())
	}
	etcd, peer := "http://127.0.0.1:"+ports[0], "http://127.0.0.1:"+ports[1]
	s.start(t, "etcd", "--data-dir", s.home+"/etcd", "--listen-client-urls", etcd, "--advertise-client-urls", etcd,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer)
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.MarshalECPrivateKey(private)
	require.NoError(t, err)
	key := s.write(t, "key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})))
	s.url = "https://127.0.0.1:" + ports[2]
	s.api = []string{"kube-apiserver", "--etcd-servers", etcd, "--bind-address", "127.0.0.1", "--secure-port", ports[2],
		"--cert-dir", s.home, "--authorization-mode", "RBAC", "--token-auth-file",
		s.write(t, "tokens.csv", "admin,admin,admin,system:masters\n"), "--service-account-issuer", s.url,
		"--service-account-key-file", key, "--service-account-signing-key-file", key,
		"--service-cluster-ip-range", "10.0.0.0/24", "--feature-gates", "WatchList=false"} // Debian's etcd lacks what it needs
	s.stopAPI = s.start(t, s.api...)
	admin := s.kubeconfig(t, "admin")
	require.Eventually(t, func() bool {
		return exec.CommandContext(t.Context(), s.bin+"/kubectl", "--kubeconfig", admin, "get", "--raw", "/readyz").Run() == nil
	}, 2*time.Minute, time.Second, "the API is ready")
	s.start(t, "kube-controller-manager", "--kubeconfig", admin, "--leader-elect=false", "--secure-port=0",
		"--service-account-private-key-file", key)
	s.start(t, "kube-scheduler", "--kubeconfig", admin, "--leader-elect=false", "--secure-port=0")
	s.start(t, "kwok", "--kubeconfig", admin, "--config", "testdata/kwok.yaml", "--node-lease-duration-seconds", "40",
		"--manage-nodes-with-annotation-selector", "kwok.x-k8s.io/node=fake")
	s.kubectl(t, "", "apply", "-f", "testdata/servers.yaml", "-f", "../../deploy/kubernetes/spawner/agents.yaml")
	s.kubectl(t, "", "wait", "--for=condition=Ready", "node/fake-1", "node/fake-2", "--timeout=2m")
	s.kubectl(t, "", "wait", "--for=create", "serviceaccount/default", "--timeout=2m")
	return s
}

// start starts one of the programs; stop kills it.
func (s *servers) start(t *testing.T, line ...string) (stop func()) {
	t.Helper()
	program := filepath.Join(s.bin, line[0])
	if line[0] == "etcd" {
		program = line[0]
	}
	command := exec.Command(program, line[1:]...) //nolint:noctx // it ends with the test
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	log, err := os.OpenFile(filepath.Join(s.home, line[0]+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	command.Stdout, command.Stderr = log, log
	require.NoError(t, command.Start())
	stop = func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	}
	t.Cleanup(stop)
	return stop
}

func (s *servers) write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(s.home, name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func (s *servers) kubeconfig(t *testing.T, token string) string {
	t.Helper()
	return s.write(t, "kubeconfig-"+token[max(0, len(token)-8):], fmt.Sprintf(`{"apiVersion":"v1","kind":"Config",
"current-context":"c","clusters":[{"name":"c","cluster":{"server":%q,"insecure-skip-tls-verify":true}}],
"users":[{"name":"u","user":{"token":%q}}],
"contexts":[{"name":"c","context":{"cluster":"c","user":"u","namespace":"mainstay-agents"}}]}`, s.url, token))
}

func (s *servers) kubectl(t *testing.T, input string, args ...string) string {
	t.Helper()
	args = append([]string{"--kubeconfig", s.home + "/kubeconfig-admin"}, args...)
	command := exec.CommandContext(t.Context(), s.bin+"/kubectl", args...)
	command.Stdin = strings.NewReader(input)
	output, err := command.CombinedOutput()
	require.NoError(t, err, "kubectl %s: %s", args, output)
	return string(output)
}

// patch has a pod's status be what its kubelet would make it.
func (s *servers) patch(t *testing.T, status string) {
	t.Helper()
	s.kubectl(t, "", "patch", "pod", podName, "--subresource=status", "-p", `{"status":`+status+`}`)
}

// left is what is in the namespace of the agents.
func (s *servers) left(t *testing.T) []string {
	t.Helper()
	return strings.Fields(s.kubectl(t, "", "get", "pods,secrets", "-o", "name"))
}

// spawnerOf is a spawner with the rights of a service account, by default those of deploy/kubernetes/spawner.
func (s *servers) spawnerOf(t *testing.T, account string, change func(o *Options)) *Kubernetes {
	t.Helper()
	token := strings.TrimSpace(s.kubectl(t, "", "create", "token", account, "-n", "mainstay"))
	o := Options{Kubeconfig: s.kubeconfig(t, token), Options: spawner.Options{Name: "rack", Image: "agent:1",
		StopGrace: 2 * time.Second, JoinToken: func(fleet.SpawnSpec) (string, error) { return "token", nil }}}
	if change != nil {
		change(&o)
	}
	k, err := New(o)
	require.NoError(t, err)
	return k
}

func TestTheSpawnerInKubernetes(t *testing.T) {
	t.Parallel()
	s := startServers(t)
	k := s.spawnerOf(t, "spawner", nil)
	start := func(t *testing.T, k *Kubernetes) fleet.Spawned {
		t.Helper()
		spawned, err := k.Spawn(t.Context(), spec)
		require.NoError(t, err)
		return spawned
	}
	empty := func(t *testing.T) {
		t.Helper()
		require.NoError(t, spawner.TerminateAll(t.Context(), k, true))
		require.NoError(t, k.Terminate(t.Context(), spec.ID, true))
		require.Eventually(t, func() bool { return len(s.left(t)) == 0 }, time.Minute, time.Second, "nothing leaks")
	}
	template := func(text string) func(o *Options) {
		return func(o *Options) { o.PodTemplate = s.write(t, "template.yaml", text) }
	}
	for name, run := range map[string]func(t *testing.T){
		"from 0 to 5 and back, each asked for by two": func(t *testing.T) {
			var wg sync.WaitGroup
			for i := range 10 {
				wg.Go(func() {
					each := spec
					each.ID = fmt.Sprintf("c_1-%d", i%5)
					_, err := []*Kubernetes{k, s.spawnerOf(t, "spawner", nil)}[i%2].Spawn(t.Context(), each)
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
			require.Len(t, s.left(t), 10, "a pod and a secret each")
		},
		"started anew": func(t *testing.T) {
			start(t, k)
			before := s.kubectl(t, "", "get", "pod", podName, "-o", "jsonpath={.metadata.uid}")
			require.NoError(t, k.Terminate(t.Context(), spec.ID, true))
			start(t, k)
			require.NotEqual(t, before, s.kubectl(t, "", "get", "pod", podName, "-o", "jsonpath={.metadata.uid}"))
		},
		"the spawner dies between create and start": func(t *testing.T) {
			dead := s.spawnerOf(t, "spawner", func(o *Options) {
				template("metadata: {annotations: {held: for its files}}")(o)
				o.JoinToken = func(fleet.SpawnSpec) (string, error) { return "", errors.New("it is dead") }
			})
			_, err := dead.Spawn(t.Context(), spec)
			require.ErrorContains(t, err, "it is dead")
			require.Equal(t, []string{"pod/" + podName}, s.left(t))
			started := make(chan error)
			go func() {
				_, err := k.Spawn(t.Context(), spec)
				started <- err
			}()
			require.Eventually(t, func() bool { return len(s.left(t)) == 2 }, time.Minute, time.Second, "it has its files")
			s.kubectl(t, "", "annotate", "pod", podName, "held-")
			require.NoError(t, <-started)
			list, err := k.List(t.Context())
			require.NoError(t, err)
			require.Len(t, list, 1)
		},
		"quota": func(t *testing.T) {
			s.kubectl(t, "", "create", "quota", "two", "--hard=pods=1")
			defer s.kubectl(t, "", "delete", "quota", "two")
			s.kubectl(t, "", "wait", "--for=jsonpath={.status.hard.pods}=1", "quota/two")
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
				assert.Eventually(t, func() bool { return len(s.left(t)) == 2 }, time.Minute, time.Second)
				s.patch(t, `{"phase":"Running"}`)
			}()
			require.Equal(t, "lost", start(t, lost).Host)
			err := k.Terminate(t.Context(), spec.ID, false)
			require.ErrorContains(t, err, "the node lost has not confirmed the end of the pod of c_1-0a")
			s.kubectl(t, "", "delete", "node", "lost")
			require.Eventually(t, func() bool { return k.Terminate(t.Context(), spec.ID, false) == nil }, 3*time.Minute,
				time.Second, "the controllers forget the pods of a deleted node")
		},
	} {
		t.Run(name, func(t *testing.T) {
			defer empty(t)
			run(t)
		})
	}
	reports := make(chan fleet.SpawnEnd, 10)
	go k.Watch(t.Context(), func(end fleet.SpawnEnd) { reports <- end })
	status := func(status string) func() { return func() { s.patch(t, status) } }
	killed := `{"phase":"Failed","containerStatuses":[{"name":"agent","image":"agent:1","state":{"running":null,` +
		`"terminated":{"exitCode":137,"reason":"%s","finishedAt":"2026-01-02T03:04:05Z"}}}]}`
	for why, end := range map[string]func(){
		"its container was ended by SIGKILL":                               status(fmt.Sprintf(killed, "Error")),
		"its container was killed: it used more than its 64 MiB of memory": status(fmt.Sprintf(killed, "OOMKilled")),
		"its pod was ended: Evicted: The node was low on resource: memory.": status(
			`{"phase":"Failed","reason":"Evicted","message":"The node was low on resource: memory."}`),
		"its pod was ended: EvictionByEvictionAPI: Eviction API: evicting": func() {
			s.kubectl(t, `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"`+podName+`"}}`, "create", "--raw",
				"/api/v1/namespaces/mainstay-agents/pods/"+podName+"/eviction", "-f", "-")
		},
		"its container was ended by SIGTERM": func() { s.kubectl(t, "", "delete", "pod", podName) },
		"its pod was deleted":                func() { s.kubectl(t, "", "delete", "pod", podName, "--force") },
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
		s.stopAPI()
		for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
			_, err := k.Spawn(t.Context(), spec)
			require.Error(t, err)
			require.NotErrorIs(t, err, spawner.ErrRefused)
			require.Error(t, k.Terminate(t.Context(), spec.ID, true))
			require.NoError(t, spawner.Pause(t.Context(), time.Second))
		}
		s.stopAPI = s.start(t, s.api...)
		require.Eventually(t, func() bool {
			list, err := k.List(t.Context())
			return err == nil && len(list) == 1
		}, time.Minute, time.Second)
		start(t, k)
		require.Len(t, s.left(t), 2, "nothing is doubled")
		s.kubectl(t, "", "delete", "pod", podName)
		require.Equal(t, "its container was ended by SIGTERM", (<-reports).Reason, "the spawner still watches")
		empty(t)
	})
}

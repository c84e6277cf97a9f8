// Package kubernetes runs the servers of Kubernetes that servers.sh builds, for tests that are run by hand.
package kubernetes

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/testsuite/freeport"
)

// Servers are those of a real Kubernetes on this machine, which has no node yet.
type Servers struct {
	bin, home, url string
	api            []string // the command line of the API's server
	// StopAPI kills the API's server.
	StopAPI func()
}

// Start starts them. A test is skipped where they are not built.
func Start(t *testing.T) *Servers {
	t.Helper()
	s := &Servers{bin: os.Getenv("MAINSTAY_KUBERNETES"), home: t.TempDir()}
	if s.bin == "" {
		t.Skip("no Kubernetes: MAINSTAY_KUBERNETES names no folder with what testsuite/kubernetes/servers.sh builds")
	}
	etcd, peer, port := "http://127.0.0.1:"+freePort(t), "http://127.0.0.1:"+freePort(t), freePort(t)
	s.start(t, "etcd", "--data-dir", s.home+"/etcd", "--listen-client-urls", etcd, "--advertise-client-urls", etcd,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer)
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.MarshalECPrivateKey(private)
	require.NoError(t, err)
	key := s.Write(t, "key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})))
	s.url = "https://127.0.0.1:" + port
	s.api = []string{"kube-apiserver", "--etcd-servers", etcd, "--bind-address", "127.0.0.1", "--secure-port", port,
		"--cert-dir", s.home, "--authorization-mode", "RBAC", "--token-auth-file",
		s.Write(t, "tokens.csv", "admin,admin,admin,system:masters\n"), "--service-account-issuer", s.url,
		"--service-account-key-file", key, "--service-account-signing-key-file", key,
		"--service-cluster-ip-range", "10.0.0.0/24", "--kubelet-preferred-address-types", "InternalIP",
		"--feature-gates", "WatchList=false"} // Debian's etcd lacks what it needs
	s.StartAPI(t)
	admin := s.Kubeconfig(t, "admin")
	require.Eventually(t, func() bool {
		return exec.CommandContext(t.Context(), s.bin+"/kubectl", "--kubeconfig", admin, "get", "--raw",
			"/readyz").Run() == nil
	}, 2*time.Minute, time.Second, "the API is ready")
	s.start(t, "kube-controller-manager", "--kubeconfig", admin, "--leader-elect=false", "--secure-port=0",
		"--service-account-private-key-file", key, "--flex-volume-plugin-dir", s.home)
	s.start(t, "kube-scheduler", "--kubeconfig", admin, "--leader-elect=false", "--secure-port=0")
	s.Kubectl(t, "", "apply", "-f", testdata+"servers.yaml", "-f", "../../deploy/kubernetes/spawner/agents.yaml")
	s.Kubectl(t, "", "wait", "--for=create", "serviceaccount/default", "--timeout=2m")
	return s
}

// testdata is seen from the packages of the tests.
const testdata = "../kubernetes/testdata/"

func freePort(t *testing.T) string {
	t.Helper()
	port, err := freeport.Row(1)
	require.NoError(t, err)
	return strconv.Itoa(port)
}

// StartAPI starts the API's server anew.
func (s *Servers) StartAPI(t *testing.T) { t.Helper(); s.StopAPI = s.start(t, s.api...) }

// StartFakeNodes starts two nodes of kwok's, where no container runs.
func (s *Servers) StartFakeNodes(t *testing.T) {
	t.Helper()
	s.start(t, "kwok", "--kubeconfig", s.home+"/kubeconfig-admin", "--config", testdata+"kwok.yaml",
		"--node-lease-duration-seconds", "40", "--manage-nodes-with-annotation-selector", "kwok.x-k8s.io/node=fake")
	s.Kubectl(t, "", "wait", "--for=condition=Ready", "node/fake-1", "node/fake-2", "--timeout=2m")
}

// start starts one of the programs; stop kills it.
func (s *Servers) start(t *testing.T, line ...string) (stop func()) {
	t.Helper()
	program, attributes := filepath.Join(s.bin, line[0]), &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	switch line[0] {
	case "etcd":
		program = line[0]
	case "sh": // a node: all its processes and mounts end with it
		program, attributes.Cloneflags = line[0], syscall.CLONE_NEWNS|syscall.CLONE_NEWPID
	}
	command := exec.Command(program, line[1:]...) //nolint:noctx // it ends with the test
	command.SysProcAttr = attributes
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

// Write writes a file.
func (s *Servers) Write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(s.home, name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// Kubeconfig is the file of who has a token.
func (s *Servers) Kubeconfig(t *testing.T, token string) string {
	t.Helper()
	return s.Write(t, "kubeconfig-"+token[max(0, len(token)-8):], fmt.Sprintf(`{"apiVersion":"v1","kind":"Config",
"current-context":"c","clusters":[{"name":"c","cluster":{"server":%q,"insecure-skip-tls-verify":true}}],
"users":[{"name":"u","user":{"token":%q}}],
"contexts":[{"name":"c","context":{"cluster":"c","user":"u","namespace":"mainstay-agents"}}]}`, s.url, token))
}

// Kubectl runs kubectl as the admin, and returns what it prints.
func (s *Servers) Kubectl(t *testing.T, input string, args ...string) string {
	t.Helper()
	args = append([]string{"--kubeconfig", s.home + "/kubeconfig-admin"}, args...)
	command := exec.CommandContext(t.Context(), s.bin+"/kubectl", args...)
	command.Stdin = strings.NewReader(input)
	output, err := command.CombinedOutput()
	require.NoError(t, err, "kubectl %s: %s", args, output)
	return string(output)
}

// KubeconfigOf is the file of a service account: spawner has the rights of deploy/kubernetes/spawner.
func (s *Servers) KubeconfigOf(t *testing.T, account string) string {
	t.Helper()
	return s.Kubeconfig(t, strings.TrimSpace(s.Kubectl(t, "", "create", "token", account, "-n", "mainstay")))
}

// Evict has the API evict a pod.
func (s *Servers) Evict(t *testing.T, pod string) {
	t.Helper()
	s.Kubectl(t, `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"`+pod+`"}}`, "create", "--raw",
		"/api/v1/namespaces/mainstay-agents/pods/"+pod+"/eviction", "-f", "-")
}

// Left is what is in the namespace of the agents.
func (s *Servers) Left(t *testing.T) []string {
	t.Helper()
	return strings.Fields(s.Kubectl(t, "", "get", "pods,secrets", "-o", "name"))
}

// Node is a real kubelet, whose pods run in a containerd of its own.
type Node struct {
	// Address is where its pods reach this machine.
	Address string
	*Servers
}

// StartNode starts it, with one image, which is that of the pods' sandboxes too.
func (s *Servers) StartNode(t *testing.T, image string, archive []byte) *Node {
	t.Helper()
	if _, err := exec.LookPath("containerd"); err != nil || os.Geteuid() != 0 {
		t.Skip("no node: it needs root, and Debian's containerd, runc and containernetworking-plugins")
	}
	containerd := s.Write(t, "containerd.toml", fmt.Sprintf(`
version = 2
root = "%[1]s/root"
state = "%[1]s/state"
[grpc]
address = "%[1]s/containerd"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = %[2]q
restrict_oom_score_adj = true
netns_mounts_under_state_dir = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "%[1]s"
`, s.home, image))
	s.Write(t, "pods.conflist", `{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"ptp","ipam":{"type":"host-local",
"ranges":[[{"subnet":"10.99.0.0/24"}]],"routes":[{"dst":"0.0.0.0/0"}]}}]}`)
	kubelet := s.Write(t, "kubelet.yaml", fmt.Sprintf(`
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
failSwapOn: false
evictionHard: {nodefs.available: 1Gi}
imageGCHighThresholdPercent: 100
makeIPTablesUtilChains: false
containerRuntimeEndpoint: unix://%s/containerd
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
port: %s
healthzPort: 0
resolvConf: ""
`, s.home, freePort(t)))
	t.Cleanup(func() { // when the node has ended
		assert.NoError(t, exec.Command("find", "/sys/fs/cgroup", "-depth", "-type", "d", "-path", "*/kubepods*",
			"-delete").Run())
	})
	// It sees folders and kernel settings of its own, so that nothing is left of it.
	s.start(t, "sh", "-ec", `mount --make-rprivate /
mount -t proc proc /proc
for d in /run /var/lib /var/log /usr/libexec; do mount -t tmpfs tmpfs $d; done
for f in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops net/ipv4/ip_forward; do
	cat /proc/sys/$f >/run/setting-${f##*/}
	mount --bind /run/setting-${f##*/} /proc/sys/$f
done
mount --make-rshared /
containerd --config $0 &
"$@" &
wait`, containerd, s.bin+"/kubelet", "--config", kubelet, "--kubeconfig", s.home+"/kubeconfig-admin", "--root-dir",
		s.home+"/kubelet", "--hostname-override", "real")
	n := &Node{Servers: s}
	require.Eventually(t, func() bool { return n.ctr(t, "version") == nil }, time.Minute, time.Second)
	path := s.Write(t, "image.tar", string(archive))
	require.NoError(t, n.ctr(t, "images", "import", path))
	s.Kubectl(t, "", "wait", "--for=create", "node/real", "--timeout=2m")
	s.Kubectl(t, "", "wait", "--for=condition=Ready", "node/real", "--timeout=2m")
	n.Address = s.Kubectl(t, "", "get", "node", "real", "-o",
		`jsonpath={.status.addresses[?(@.type=="InternalIP")].address}`)
	return n
}

func (n *Node) ctr(t *testing.T, args ...string) error {
	args = append([]string{"-a", n.home + "/containerd", "-n", "k8s.io"}, args...)
	return exec.CommandContext(t.Context(), "ctr", args...).Run()
}

// Kill sends SIGKILL to a pod's container.
func (n *Node) Kill(t *testing.T, pod string) {
	t.Helper()
	id := n.Kubectl(t, "", "get", "pod", pod, "-o", "jsonpath={.status.containerStatuses[0].containerID}")
	require.NoError(t, n.ctr(t, "tasks", "kill", "-s", "SIGKILL", strings.TrimPrefix(id, "containerd://")))
}

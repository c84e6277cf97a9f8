package kubernetes

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// apiServer is an API of the tests: it keeps pods and secrets as Kubernetes does, and its kubelet does what a test says.
type apiServer struct {
	mu       sync.Mutex
	pods     map[string]*corev1.Pod
	secrets  map[string]*corev1.Secret
	version  int
	changed  chan struct{} // closed at each change
	history  []metav1.WatchEvent
	shows    int                                          // how many more times it shows a deleted pod that has ended
	runs     func(pod *corev1.Pod)                        // what happens to a new pod; nil: it runs when it has its files
	refuses  func(r *http.Request) *apierrors.StatusError // what is answered instead; nil: nothing
	loses    func(r *http.Request) bool                   // whether the answer is lost
	requests []string
	url      string
}

func newCluster(t *testing.T) *apiServer {
	t.Helper()
	c := &apiServer{pods: map[string]*corev1.Pod{}, secrets: map[string]*corev1.Secret{}, changed: make(chan struct{})}
	server := httptest.NewServer(c)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	c.url = server.URL
	return c
}

// kubeconfig is a file that names the cluster.
func (c *apiServer) kubeconfig(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(path, fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Config","current-context":"c",
"clusters":[{"name":"c","cluster":{"server":%q}}],"users":[{"name":"u","user":{}}],
"contexts":[{"name":"c","context":{"cluster":"c","user":"u","namespace":"agents"}}]}`, c.url), 0o600))
	return path
}

// set changes a pod, as its node would.
func (c *apiServer) set(name string, change func(pod *corev1.Pod)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.change(c.pods[name], "MODIFIED", change)
}

// remove has the API forget a pod, as when its node has confirmed its end.
func (c *apiServer) remove(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.change(c.pods[name], "DELETED", func(*corev1.Pod) {})
	delete(c.pods, name)
}

func (c *apiServer) change(pod *corev1.Pod, what string, change func(pod *corev1.Pod)) {
	change(pod)
	c.version++
	pod.ResourceVersion = fmt.Sprint(c.version)
	event := metav1.WatchEvent{Type: what}
	event.Object.Raw, _ = json.Marshal(pod)
	c.history = append(c.history, event)
	close(c.changed)
	c.changed = make(chan struct{})
}

// asked reports whether a request was made.
func (c *apiServer) asked(request string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Contains(c.requests, request)
}

func (c *apiServer) names() (pods, secrets []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.pods {
		pods = append(pods, name)
	}
	for name := range c.secrets {
		secrets = append(secrets, name)
	}
	return pods, secrets
}

func (c *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/api/v1/namespaces/agents/"), "/")
	if r.URL.Query().Get("watch") != "" {
		c.watch(w, r)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests = append(c.requests, r.Method+" "+strings.Join(parts, "/"))
	var status *apierrors.StatusError
	if c.refuses != nil {
		status = c.refuses(r)
	}
	var body any
	if status == nil {
		if parts[0] == "secrets" {
			body, status = c.serveSecret(r, parts)
		} else {
			body, status = c.servePod(r, parts)
		}
	}
	if c.loses != nil && c.loses(r) {
		panic(http.ErrAbortHandler)
	}
	if text, ok := body.(string); ok { // a log
		_, _ = io.WriteString(w, text)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if status != nil {
		status.ErrStatus.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		w.WriteHeader(int(status.ErrStatus.Code))
		body = status.ErrStatus
	}
	_ = json.NewEncoder(w).Encode(body)
}

func (c *apiServer) serveSecret(r *http.Request, parts []string) (any, *apierrors.StatusError) {
	gr := schema.GroupResource{Resource: "secrets"}
	if r.Method == http.MethodPost {
		secret := &corev1.Secret{}
		_ = json.NewDecoder(r.Body).Decode(secret)
		if c.secrets[secret.Name] != nil {
			return nil, apierrors.NewAlreadyExists(gr, secret.Name)
		}
		c.secrets[secret.Name] = secret
		if pod := c.pods[secret.Name]; c.runs == nil && pod != nil {
			c.change(pod, "MODIFIED", runs)
		}
		return secret, nil
	}
	if c.secrets[parts[1]] == nil {
		return nil, apierrors.NewNotFound(gr, parts[1])
	}
	delete(c.secrets, parts[1])
	return &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}}, nil
}

func (c *apiServer) servePod(r *http.Request, parts []string) (any, *apierrors.StatusError) {
	gr := schema.GroupResource{Resource: "pods"}
	kind := metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	if r.Method == http.MethodPost {
		pod := &corev1.Pod{}
		_ = json.NewDecoder(r.Body).Decode(pod)
		if c.pods[pod.Name] != nil {
			return nil, apierrors.NewAlreadyExists(gr, pod.Name)
		}
		pod.TypeMeta, pod.Namespace, pod.CreationTimestamp = kind, "agents", metav1.Now()
		pod.Status.Phase = corev1.PodPending
		pod.UID = types.UID(fmt.Sprint("uid-", c.version))
		c.pods[pod.Name] = pod
		c.change(pod, "ADDED", func(*corev1.Pod) {})
		if c.runs != nil {
			c.change(pod, "MODIFIED", c.runs)
		}
		return pod, nil
	}
	if len(parts) == 1 {
		list := &corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
		list.ResourceVersion = fmt.Sprint(c.version)
		for _, pod := range c.pods {
			list.Items = append(list.Items, *pod)
		}
		return list, nil
	}
	pod := c.pods[parts[1]]
	if pod == nil {
		return nil, apierrors.NewNotFound(gr, parts[1])
	}
	if len(parts) == 3 {
		return "its last words", nil
	}
	if r.Method == http.MethodGet && pod.DeletionTimestamp != nil && c.shows > 0 {
		if c.shows--; c.shows == 0 {
			c.change(pod, "DELETED", func(*corev1.Pod) {})
			delete(c.pods, pod.Name)
		}
	}
	if r.Method == http.MethodDelete {
		var o metav1.DeleteOptions
		_ = json.NewDecoder(r.Body).Decode(&o)
		if *o.Preconditions.UID != pod.UID {
			return nil, apierrors.NewConflict(gr, pod.Name, http.ErrAbortHandler)
		}
		c.change(pod, "MODIFIED", func(pod *corev1.Pod) {
			now := metav1.Now()
			pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &now, o.GracePeriodSeconds
		})
		if c.shows > 0 {
			c.change(pod, "MODIFIED", ends(corev1.PodFailed, corev1.ContainerStateTerminated{ExitCode: 143}))
		} else if pod.Spec.NodeName != "lost" {
			c.change(pod, "DELETED", func(*corev1.Pod) {})
			delete(c.pods, pod.Name)
		}
	}
	return pod, nil
}

func (c *apiServer) watch(w http.ResponseWriter, r *http.Request) {
	from := 0
	_, _ = fmt.Sscan(r.URL.Query().Get("resourceVersion"), &from)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	for {
		c.mu.Lock()
		events, changed := c.history[from:], c.changed
		from = len(c.history)
		c.mu.Unlock()
		for i := range events {
			_ = json.NewEncoder(w).Encode(events[i])
		}
		w.(http.Flusher).Flush() //nolint:forcetypeassert // a server's writer is one
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

// runs is a pod that its node has started.
func runs(pod *corev1.Pod) {
	now := metav1.NewTime(time.Now())
	pod.Spec.NodeName, pod.Status.Phase, pod.Status.StartTime = "node-1", corev1.PodRunning, &now
}

// ends is a pod whose container has ended.
func ends(phase corev1.PodPhase, state corev1.ContainerStateTerminated) func(pod *corev1.Pod) {
	return func(pod *corev1.Pod) {
		state.FinishedAt = metav1.Now()
		pod.Status.Phase = phase
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: agentContainer,
			State: corev1.ContainerState{Terminated: &state}}}
	}
}

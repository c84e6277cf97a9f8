package kubernetes

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/spawner"
	"mainstay.dev/sdk/api"
)

// Labels and annotations of the pods. A cluster's name need not be a label's value.
const (
	labelSpawner      = "mainstay.dev/spawner"
	labelComponent    = "app.kubernetes.io/component"
	annotationSpawnID = "mainstay.dev/spawn-id"
	annotationCluster = "mainstay.dev/cluster"
)

const (
	// agentContainer is the name of the agent's container. Others may stand beside it in a template.
	agentContainer = "agent"
	// filesGroup may read the agent's files.
	filesGroup = 65532
	// defaultTmp is the size of /tmp in bytes; resources.storage changes it.
	defaultTmp = 64 << 20
)

// nameOf is the name of an agent's pod and of its secret. Kubernetes gives a name once, so nothing is started twice.
func nameOf(id string) string {
	return "mainstay-" + strings.NewReplacer("_", "-", ".", "-").Replace(id)
}

func idOf(pod *corev1.Pod) string { return pod.Annotations[annotationSpawnID] }

// describe puts together the pod of an agent: the template, and what this spawner decides.
func (k *Kubernetes) describe(spec *cluster.SpawnSpec) (*corev1.Pod, error) {
	image, err := k.o.ImageOf(spec)
	if err != nil {
		return nil, err
	}
	template := k.template.DeepCopy()
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Name, pod.GenerateName = nameOf(spec.ID), ""
	pod.Labels = with(pod.Labels, labelSpawner, k.o.Name, labelComponent, "spawned-agent")
	pod.Annotations = with(pod.Annotations, annotationSpawnID, spec.ID, annotationCluster, spec.Cluster)
	s := &pod.Spec
	at := slices.IndexFunc(s.Containers, func(c corev1.Container) bool { return c.Name == agentContainer })
	if at < 0 {
		s.Containers, at = slices.Insert(s.Containers, 0, corev1.Container{Name: agentContainer}), 0
	}
	k.bind(s, spec)
	k.confine(s, &s.Containers[at], spec)
	c := &s.Containers[at]
	c.Image = image
	if pull := spec.Kubernetes.Pull; pull != "" {
		c.ImagePullPolicy = pullPolicies[pull]
	}
	if command := k.o.CommandOf(spec); len(command) > 0 {
		c.Args = literal(command[1:])
		if command[0] != "" {
			c.Command = literal(command[:1])
		}
	}
	for _, entry := range append(k.o.Environment(spec), k.o.FileEnvironment()...) {
		name, value, _ := strings.Cut(entry, "=")
		c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: literal([]string{value})[0]})
	}
	return pod, nil
}

var pullPolicies = map[api.PullPolicy]corev1.PullPolicy{api.PullMissing: corev1.PullIfNotPresent,
	api.PullAlways: corev1.PullAlways, api.PullNever: corev1.PullNever}

// literal makes Kubernetes leave $(…) as it is.
func literal(texts []string) []string {
	texts = slices.Clone(texts)
	for i := range texts {
		texts[i] = strings.ReplaceAll(texts[i], "$", "$$")
	}
	return texts
}

func with(m map[string]string, pairs ...string) map[string]string {
	if m == nil {
		m = map[string]string{}
	}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return m
}

// bind sets how a pod lives and ends.
func (k *Kubernetes) bind(s *corev1.PodSpec, spec *cluster.SpawnSpec) {
	s.RestartPolicy = corev1.RestartPolicyNever // the cluster decides
	s.TerminationGracePeriodSeconds = new(int64(k.o.StopGrace.Seconds() + 0.5))
	s.EnableServiceLinks = new(false)
	if k.o.ServiceAccount != "" {
		s.ServiceAccountName = k.o.ServiceAccount
	} else if s.AutomountServiceAccountToken == nil {
		s.AutomountServiceAccountToken = new(false)
	}
	s.PriorityClassName = cmp.Or(spec.Kubernetes.PriorityClass, s.PriorityClassName)
	if s.SecurityContext == nil {
		s.SecurityContext = &corev1.PodSecurityContext{}
	}
	security := s.SecurityContext
	security.RunAsNonRoot = new(true)
	if security.SeccompProfile == nil {
		security.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	}
	if security.FSGroup == nil {
		security.FSGroup = new(int64(filesGroup))
	}
}

// confine sets the limits, the rights and the folders of the agent's container.
func (k *Kubernetes) confine(s *corev1.PodSpec, c *corev1.Container, spec *cluster.SpawnSpec) {
	limits := corev1.ResourceList{}
	if milli, _ := spec.Resources.MilliCPU(); milli > 0 {
		limits[corev1.ResourceCPU] = *resource.NewMilliQuantity(milli, resource.DecimalSI)
	}
	if bytes, _ := spec.Resources.MemoryBytes(); bytes > 0 {
		limits[corev1.ResourceMemory] = *resource.NewQuantity(bytes, resource.BinarySI)
	}
	storage, _ := spec.Resources.StorageBytes()
	if len(limits) > 0 {
		c.Resources = corev1.ResourceRequirements{Limits: limits, Requests: limits.DeepCopy()}
	}
	c.SecurityContext = &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		ReadOnlyRootFilesystem:   new(!spec.Kubernetes.WritableRoot),
	}
	mount := func(name, path string, readOnly bool, source corev1.VolumeSource) {
		s.Volumes = append(s.Volumes, corev1.Volume{Name: name, VolumeSource: source})
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: path, ReadOnly: readOnly})
	}
	mount("mainstay-tmp", "/tmp", false, corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{
		SizeLimit: resource.NewQuantity(cmp.Or(storage, defaultTmp), resource.BinarySI)}})
	if len(k.o.FileEnvironment()) > 0 {
		mount("mainstay-files", spawner.FilesDir, true, corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
			SecretName: nameOf(spec.ID), DefaultMode: new(int32(0o440))}})
	}
}

// isOver reports whether all containers of a pod have ended, none to start again.
func isOver(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// waitsFor says what a pod waits for, and whether waiting longer is no use.
func waitsFor(pod *corev1.Pod) (why string, hopeless bool) {
	for _, status := range append(slices.Clone(pod.Status.InitContainerStatuses), pod.Status.ContainerStatuses...) {
		waiting := status.State.Waiting
		if waiting != nil && !slices.Contains([]string{"", "ContainerCreating", "PodInitializing"}, waiting.Reason) {
			return waiting.Reason + ": " + waiting.Message, true
		}
	}
	return standing(pod), false
}

// standing is what Kubernetes says of a pod.
func standing(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Reason + ": " + c.Message
		}
	}
	if pod.Status.Reason != "" {
		return pod.Status.Reason + ": " + pod.Status.Message
	}
	return fmt.Sprintf("it is %s on node %q", pod.Status.Phase, pod.Spec.NodeName)
}

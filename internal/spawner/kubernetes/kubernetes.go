// Package kubernetes starts agents as pods of one namespace of a Kubernetes cluster. All that it knows of them is in
// that cluster: their names come from the spawns' ids and their labels name the spawner, so that the next process takes
// them over.
package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/spawner"
	"mainstay.dev/mainstay/internal/textfile"
	"mainstay.dev/sdk/api"
)

const (
	// callLimit bounds one request.
	callLimit = 10 * time.Second
	// startLimit is how long a pod may take to run: nodes fetch images, and may have to be found.
	startLimit = 90 * time.Second
	// lookEvery is the time between two looks at one pod that is to start or to end.
	lookEvery = time.Second
	// goneLimit is how much longer than its grace a stop may take.
	goneLimit = 10 * time.Second
	// quickGrace is the grace of a stop that is not graceful. Without any, the API forgets a pod that may still run.
	quickGrace = time.Second
)

// Options describe a spawner of pods.
type Options struct {
	spawner.Options
	// Kubeconfig and Context say how the API is reached; empty: KUBECONFIG or ~/.kube/config with its current context,
	// else the service account of the spawner's own pod.
	Kubeconfig, Context string
	// Namespace is the pods' namespace; empty: the context's, or the one of the spawner's own pod.
	Namespace string
	// ServiceAccount is the pods' account, whose token they see; empty: the namespace's default, without its token.
	ServiceAccount string
	// PodTemplate is a file with what all pods have in common, as a PodTemplateSpec in YAML; empty: nothing.
	PodTemplate string
}

// Kubernetes is a Spawner of pods. They live on when it ends.
type Kubernetes struct {
	o         Options
	api       *rest.RESTClient
	params    runtime.ParameterCodec
	namespace string
	template  corev1.PodTemplateSpec
	turns     spawner.Turns
	ended     atomic.Pointer[func(api.SpawnEnd)] // takes ends that nobody asked for
	ends      spawner.Ends
}

// New makes a spawner. It does not call the API, which may be away.
func New(o Options) (*Kubernetes, error) {
	if err := o.Fill(); err != nil {
		return nil, err
	}
	k := &Kubernetes{o: o}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.Kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules,
		&clientcmd.ConfigOverrides{CurrentContext: o.Context})
	config, err := loader.ClientConfig()
	if err == nil && o.Namespace == "" {
		k.namespace, _, err = loader.Namespace()
	} else {
		k.namespace = o.Namespace
	}
	if err != nil {
		return nil, fmt.Errorf("find the Kubernetes cluster: %w", err)
	}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("prepare the objects of Kubernetes: %w", err)
	}
	k.params = runtime.NewParameterCodec(scheme)
	config.APIPath, config.GroupVersion = "/api", &corev1.SchemeGroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.UserAgent, config.WarningHandler = "mainstay", rest.NoWarnings{}
	config.QPS, config.Burst = 50, 100
	if k.api, err = rest.RESTClientFor(config); err != nil {
		return nil, fmt.Errorf("reach the Kubernetes cluster: %w", err)
	}
	if o.PodTemplate == "" {
		return k, nil
	}
	text, err := textfile.Read(o.PodTemplate)
	if err == nil {
		err = yaml.UnmarshalStrict(text, &k.template)
	}
	if err != nil {
		return nil, fmt.Errorf("read the template of the pods: %w", err)
	}
	return k, nil
}

// Close implements the end of a spawner. The pods live on.
func (k *Kubernetes) Close() {}

// Platform implements spawner.Spawner.
func (k *Kubernetes) Platform() api.Platform { return api.PlatformKubernetes }

// to completes a request about objects of the namespace.
func (k *Kubernetes) to(r *rest.Request, resource string) *rest.Request {
	return r.Namespace(k.namespace).Resource(resource).Timeout(callLimit)
}

// Spawn implements spawner.Spawner. It waits until the pod runs.
func (k *Kubernetes) Spawn(ctx context.Context, spec cluster.SpawnSpec) (cluster.Spawned, error) {
	if err := spawner.CheckSpec(&spec); err != nil {
		return cluster.Spawned{}, err
	}
	release, err := k.turns.Take(ctx, spec.ID)
	if err != nil {
		return cluster.Spawned{}, err
	}
	defer release()
	pod, err := k.find(ctx, spec.ID)
	if err == nil && pod == nil {
		pod, err = k.create(ctx, &spec)
	}
	if err == nil && pod.Status.Phase == corev1.PodPending { // the spawner may have died before it gave the files
		err = k.giveFiles(ctx, pod, &spec)
	}
	if err == nil {
		pod, err = k.awaitRunning(ctx, pod, spec.ID)
	}
	if err != nil {
		return cluster.Spawned{}, err
	}
	return k.spawned(pod), nil
}

func (k *Kubernetes) spawned(pod *corev1.Pod) cluster.Spawned {
	since := pod.CreationTimestamp.UTC()
	if pod.Status.StartTime != nil {
		since = pod.Status.StartTime.UTC()
	}
	return cluster.Spawned{ID: idOf(pod), Cluster: pod.Annotations[annotationCluster], Spawner: k.o.Name,
		Platform: api.PlatformKubernetes, Handle: pod.Namespace + "/" + pod.Name, Host: pod.Spec.NodeName,
		StartedAt: since}
}

// find returns the pod of an agent; nil when there is none.
func (k *Kubernetes) find(ctx context.Context, id string) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	err := k.to(k.api.Get(), "pods").Name(nameOf(id)).Do(ctx).Into(pod)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, refusal("look for the pod of "+id, err)
	case pod.Labels[labelSpawner] != k.o.Name || idOf(pod) != id:
		return nil, fmt.Errorf("%w: the pod %s is not of the spawner %s", spawner.ErrRefused, pod.Name, k.o.Name)
	}
	return pod, nil
}

// create makes the pod, which waits for its files.
func (k *Kubernetes) create(ctx context.Context, spec *cluster.SpawnSpec) (*corev1.Pod, error) {
	pod, err := k.describe(spec)
	if err != nil {
		return nil, err
	}
	made := &corev1.Pod{}
	err = k.to(k.api.Post(), "pods").Body(pod).Do(ctx).Into(made)
	if err != nil {
		return nil, refusal("create the pod", err)
	}
	if len(k.o.FileEnvironment()) > 0 { // those of an earlier pod of that id
		if err := k.forgetFiles(ctx, spec.ID); err != nil {
			return nil, err
		}
	}
	k.o.Logger.Sugar().Infow("An agent was started", "agent", spec.ID, "cluster", spec.Cluster, "pod", made.Name)
	return made, nil
}

// giveFiles makes the secret that a pod waits for. Kubernetes removes it with the pod.
func (k *Kubernetes) giveFiles(ctx context.Context, pod *corev1.Pod, spec *cluster.SpawnSpec) error {
	files, err := k.o.Files(spec)
	if err != nil || len(files) == 0 {
		return err
	}
	secret := &corev1.Secret{Data: files, Immutable: new(true), ObjectMeta: metav1.ObjectMeta{Name: pod.Name,
		Labels: map[string]string{labelSpawner: k.o.Name}, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1",
			Kind: "Pod", Name: pod.Name, UID: pod.UID}}}}
	err = k.to(k.api.Post(), "secrets").Body(secret).Do(ctx).Error()
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return refusal("create the secret with the agent's files", err)
}

func (k *Kubernetes) forgetFiles(ctx context.Context, id string) error {
	err := k.to(k.api.Delete(), "secrets").Name(nameOf(id)).Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return nil
	}
	return refusal("delete the secret with the agent's files", err)
}

// awaitRunning looks at a pod until it has run for a second: one that is given wrong options ends at once.
func (k *Kubernetes) awaitRunning(ctx context.Context, pod *corev1.Pod, id string) (*corev1.Pod, error) {
	for ran, end := 0, time.Now().Add(startLimit); ran < 2; {
		err := spawner.Pause(ctx, lookEvery)
		if err != nil {
			return nil, err
		}
		switch pod, err = k.find(ctx, id); {
		case err != nil:
			return nil, err
		case pod == nil:
			return nil, fmt.Errorf("%w: somebody has deleted its pod", spawner.ErrRefused)
		case isOver(pod):
			return nil, fmt.Errorf("%w: %s", spawner.ErrRefused, k.reason(ctx, pod))
		case pod.Status.Phase == corev1.PodRunning:
			ran++
			continue
		}
		why, hopeless := waitsFor(pod)
		if hopeless || time.Now().After(end) {
			return nil, fmt.Errorf("%w: its pod does not run: %s", spawner.ErrRefused, why)
		}
	}
	return pod, nil
}

// refusal says what failed. Only what the API's absence or a busy API explains is worth another try.
func refusal(what string, err error) error {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &status), status.Status().Code >= 500, apierrors.IsTooManyRequests(err),
		apierrors.IsAlreadyExists(err), apierrors.IsConflict(err):
		return fmt.Errorf("%s: %w", what, err)
	}
	return fmt.Errorf("%w: %s: %w", spawner.ErrRefused, what, err)
}

// Terminate implements spawner.Spawner. The API knows a pod until its node has confirmed the end, so a lost node is an
// error.
func (k *Kubernetes) Terminate(ctx context.Context, id string, graceful bool) error {
	if api.ValidateID("id", id) != nil {
		return nil
	}
	release, err := k.turns.Take(ctx, id)
	if err != nil {
		return err
	}
	defer release()
	pod, err := k.find(ctx, id)
	if err != nil && isAnothers(err) || err == nil && pod == nil {
		return nil
	}
	if err != nil {
		return err
	}
	if isOver(pod) {
		k.reportEnd(ctx, pod) // before nobody can look at it any more
	}
	defer k.ends.Ask(id)()
	grace := quickGrace
	if graceful {
		grace = k.o.StopGrace
	}
	seconds := int64(grace.Seconds() + 0.5)
	err = k.to(k.api.Delete(), "pods").Name(pod.Name).Body(&metav1.DeleteOptions{GracePeriodSeconds: &seconds,
		Preconditions: &metav1.Preconditions{UID: new(pod.UID)}}).Do(ctx).Error()
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete the pod of %s: %w", id, err)
	}
	if err := k.awaitGone(ctx, id, pod.UID, time.Now().Add(grace+goneLimit)); err != nil {
		return err
	}
	k.ends.Mark(string(pod.UID))
	if len(k.o.FileEnvironment()) > 0 {
		return k.forgetFiles(ctx, id)
	}
	return nil
}

// isAnothers reports whether find failed because the pod is another spawner's.
func isAnothers(err error) bool {
	var status apierrors.APIStatus
	return errors.Is(err, spawner.ErrRefused) && !errors.As(err, &status)
}

// awaitGone waits until the API knows the pod no more: it shows one that has ended for a while, and until then no other
// has its name. All its containers have ended where a finalizer keeps it longer.
func (k *Kubernetes) awaitGone(ctx context.Context, id string, uid types.UID, end time.Time) error {
	for {
		pod, err := k.find(ctx, id)
		if err != nil {
			return err
		}
		late := time.Now().After(end)
		if pod == nil || pod.UID != uid || late && isOver(pod) {
			return nil
		}
		if late {
			return fmt.Errorf("the node %s has not confirmed the end of the pod of %s: %s", pod.Spec.NodeName, id,
				standing(pod))
		}
		if err := spawner.Pause(ctx, lookEvery); err != nil {
			return err
		}
	}
}

// List implements spawner.Spawner.
func (k *Kubernetes) List(ctx context.Context) ([]cluster.Spawned, error) {
	pods, err := k.pods(ctx)
	if err != nil {
		return nil, err
	}
	list := []cluster.Spawned{}
	for i := range pods.Items {
		if pod := &pods.Items[i]; !isOver(pod) {
			list = append(list, k.spawned(pod))
		}
	}
	spawner.SortSpawned(list)
	return list, nil
}

// own selects the pods of this spawner, those that have ended too.
func (k *Kubernetes) own() metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: labelSpawner + "=" + k.o.Name}
}

func (k *Kubernetes) pods(ctx context.Context) (*corev1.PodList, error) {
	list, options := &corev1.PodList{}, k.own()
	if err := k.to(k.api.Get(), "pods").VersionedParams(&options, k.params).Do(ctx).Into(list); err != nil {
		return nil, fmt.Errorf("list the pods: %w", err)
	}
	return list, nil
}

package kubernetes

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"

	"mainstay.dev/mainstay/internal/spawner"
	"mainstay.dev/sdk/api"
)

// watchTime is how long one watch lasts; each begins with a list.
const watchTime = time.Minute

// Watch implements spawner.Watcher. It also deletes pods that ended a while ago, and those that never ran because a
// spawner died. After a restart of the spawner an end may be reported again.
func (k *Kubernetes) Watch(ctx context.Context, ended func(api.SpawnEnd)) {
	k.ended.Store(&ended)
	spawner.Look(ctx, k.o.Logger, "The Kubernetes API", lookEvery, func() error { return k.look(ctx) })
}

// look lists the pods, and then watches them for a while.
func (k *Kubernetes) look(ctx context.Context) error {
	pods, err := k.pods(ctx)
	if err != nil {
		return err
	}
	here := map[string]bool{}
	for i := range pods.Items {
		here[string(pods.Items[i].UID)] = true
		if err := k.see(ctx, &pods.Items[i], false); err != nil {
			return err
		}
	}
	k.ends.Retain(here)
	options := k.own()
	options.Watch, options.ResourceVersion = true, pods.ResourceVersion
	options.TimeoutSeconds = new(int64(watchTime.Seconds()))
	events, err := k.to(k.api.Get(), "pods").Timeout(watchTime+callLimit).VersionedParams(&options, k.params).Watch(ctx)
	if err != nil {
		return fmt.Errorf("watch the pods: %w", err)
	}
	defer events.Stop()
	for event := range events.ResultChan() {
		if event.Type == watch.Error {
			return fmt.Errorf("watch the pods: %w", apierrors.FromObject(event.Object))
		}
		if pod, ok := event.Object.(*corev1.Pod); ok {
			if err := k.see(ctx, pod, event.Type == watch.Deleted); err != nil {
				return err
			}
		}
	}
	return nil
}

// see reports the end of a pod, and deletes the remains of an old one.
func (k *Kubernetes) see(ctx context.Context, pod *corev1.Pod, gone bool) error {
	old := pod.CreationTimestamp.UTC()
	if gone || isOver(pod) {
		old = k.reportEnd(ctx, pod)
	}
	switch {
	case gone:
		k.ends.Forget(string(pod.UID))
	case (isOver(pod) || pod.Status.Phase == corev1.PodPending) && time.Since(old) > k.o.Keep:
		return k.Terminate(ctx, idOf(pod), false)
	}
	return nil
}

// reportEnd reports the end of a pod, unless it needs no report, and returns when that was.
func (k *Kubernetes) reportEnd(ctx context.Context, pod *corev1.Pod) time.Time {
	id, at, end := idOf(pod), pod.CreationTimestamp.UTC(), terminated(pod)
	if end != nil {
		at = end.FinishedAt.UTC()
	}
	if ended := k.ended.Load(); ended != nil && k.ends.Take(id, string(pod.UID)) {
		reason := k.reason(ctx, pod)
		k.o.Logger.Sugar().Infow("An agent's pod has ended", "agent", id, "reason", reason)
		(*ended)(api.SpawnEnd{AgentID: id, Cluster: pod.Annotations[annotationCluster], At: at, Reason: reason,
			Gone: end != nil}) // the kubelet says so: a pod that is only deleted may live
	}
	return at
}

// terminated is how the agent's container ended; nil: it has not, or that is not known.
func terminated(pod *corev1.Pod) *corev1.ContainerStateTerminated {
	for i := range pod.Status.ContainerStatuses {
		if pod.Status.ContainerStatuses[i].Name == agentContainer {
			return pod.Status.ContainerStatuses[i].State.Terminated
		}
	}
	return nil
}

// reason says in words how a pod ended.
func (k *Kubernetes) reason(ctx context.Context, pod *corev1.Pod) string {
	if pod.Status.Reason != "" {
		return "its pod was ended: " + pod.Status.Reason + ": " + pod.Status.Message
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
			return "its pod was ended: " + c.Reason + ": " + c.Message
		}
	}
	t := terminated(pod)
	if t == nil {
		return "its pod was deleted"
	}
	memory := int64(0)
	for i := range pod.Spec.Containers {
		if c := &pod.Spec.Containers[i]; c.Name == agentContainer {
			memory = c.Resources.Limits.Memory().Value()
		}
	}
	why := ""
	if pod.DeletionTimestamp != nil { // the signal alone would hide that somebody deleted it
		why = "its pod was deleted: "
	}
	return why + spawner.ContainerEnd("container", int(t.ExitCode), t.Reason == "OOMKilled", memory,
		func() string { return k.lastWords(ctx, pod.Name) })
}

// lastWords is the last line of a container's log; empty where it cannot be read.
func (k *Kubernetes) lastWords(ctx context.Context, name string) string {
	options := corev1.PodLogOptions{Container: agentContainer, TailLines: new(int64(1)),
		LimitBytes: new(int64(1 << 16))}
	log, err := k.to(k.api.Get(), "pods").Name(name).SubResource("log").VersionedParams(&options, k.params).DoRaw(ctx)
	if err != nil {
		return ""
	}
	return spawner.LastWords(string(log))
}

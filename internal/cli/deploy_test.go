package cli

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/config"
)

// repository is its root, seen from here.
const repository = "../.."

// takes checks a command line as far as it can be without running it: the command is there, and takes these flags.
func takes(t *testing.T, where string, args []string) {
	t.Helper()
	a := &app.App{Getenv: func(string) string { return "" }}
	if len(args) > 0 && strings.HasPrefix(args[0], "--") { // of mainstay-agent
		args = append([]string{"agent", "run"}, args...)
	}
	command, rest, err := whole(a).Find(args)
	require.NoError(t, err, where)
	require.NotEqual(t, "mainstay", command.Name(), "%s: %v is no command", where, args)
	require.NoError(t, command.ParseFlags(rest), where)
	require.NoError(t, command.ValidateArgs(command.Flags().Args()), where)
}

func TestConfigurationsOfDeployLoad(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"deploy/mainstay.yaml", "deploy/compose.mainstay.yaml",
		"deploy/kubernetes/base/mainstay.yaml", "deploy/kubernetes/spawner/mainstay.yaml"} {
		_, err := config.Load(filepath.Join(repository, path))
		require.NoError(t, err)
	}
}

// composeFile is what is checked of a compose file.
type composeFile struct {
	Services map[string]struct {
		Image       string
		Command     []string
		Environment map[string]string
		Volumes     []string
		DependsOn   yaml.Node `yaml:"depends_on"`
		Ports       []string
		Networks    []string
		Healthcheck struct{ Test []string }
	}
	Volumes, Networks map[string]any
}

// TestAgentsInComposeReachHubsOnly lists what shares a network with agents, whose commands can be anything: parts that
// talk to agents, and nothing that Temporal or its database listens in.
func TestAgentsInComposeReachHubsOnly(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"docker-compose.yml", "deploy/compose.dev.yaml"} {
		text, err := os.ReadFile(filepath.Join(repository, name))
		require.NoError(t, err)
		var compose composeFile
		require.NoError(t, yaml.Unmarshal(text, &compose))
		members := map[string][]string{}
		for service, s := range compose.Services {
			if s.Networks == nil {
				s.Networks = []string{"default"}
			}
			for _, network := range s.Networks {
				members[network] = append(members[network], service)
				require.True(t, network == "default" || slices.Contains(slices.Collect(maps.Keys(compose.Networks)), network),
					"%s: %s is in %s, which is nowhere", name, service, network)
			}
		}
		agents := 0
		for network, services := range members {
			isAgent := func(service string) bool { return compose.Services[service].Image == "mainstay-agent" }
			if !slices.ContainsFunc(services, isAgent) {
				continue
			}
			agents++
			for _, service := range services {
				command := strings.Join(compose.Services[service].Command, " ")
				hub := compose.Services[service].Image == "mainstay" && (strings.HasPrefix(command, "serve --roles hub ") ||
					strings.HasPrefix(command, "dev ") && !strings.Contains(command, "--temporal"))
				require.True(t, hub || isAgent(service), "%s: agents can reach %s in the network %s", name, service, network)
			}
		}
		require.Equal(t, 1, agents, "%s: agents are in one network", name)
	}
}

// TestComposeFiles checks what can be checked without Docker: that what the files name is there, and that the program
// takes the commands it is given.
func TestComposeFiles(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"docker-compose.yml", "deploy/compose.dev.yaml"} {
		text, err := os.ReadFile(filepath.Join(repository, name))
		require.NoError(t, err)
		var compose composeFile
		require.NoError(t, yaml.Unmarshal(text, &compose))
		require.NotEmpty(t, compose.Services)
		ports := map[string]string{}
		for service, s := range compose.Services {
			where := name + ": " + service
			if strings.HasPrefix(s.Image, "mainstay") {
				require.Equal(t, s.Image == "mainstay-agent", strings.HasPrefix(s.Command[0], "--"), where)
				takes(t, where, s.Command)
			}
			if test := s.Healthcheck.Test; len(test) > 1 && test[1] == "/mainstay" {
				takes(t, where, test[2:])
			}
			var after []string
			switch s.DependsOn.Kind {
			case yaml.SequenceNode:
				require.NoError(t, s.DependsOn.Decode(&after))
			case yaml.MappingNode:
				conditions := map[string]struct{ Condition string }{}
				require.NoError(t, s.DependsOn.Decode(&conditions))
				for other := range conditions {
					after = append(after, other)
				}
			}
			for _, other := range after {
				require.Contains(t, compose.Services, other, where)
			}
			for _, volume := range s.Volumes {
				source, _, _ := strings.Cut(volume, ":")
				if strings.HasPrefix(source, ".") {
					require.FileExists(t, existing(filepath.Join(repository, filepath.Dir(name), source)), where)
				} else {
					require.Contains(t, compose.Volumes, source, where)
				}
			}
			for _, port := range s.Ports {
				require.True(t, strings.HasPrefix(port, "127.0.0.1:"), "%s: %s is open to everybody", where, port)
				host := port[:strings.LastIndexByte(port, ':')]
				require.NotContains(t, ports, host, where)
				ports[host] = service
			}
		}
		example, err := os.ReadFile(filepath.Join(repository, "deploy/env.example"))
		require.NoError(t, err)
		for _, required := range regexp.MustCompile(`\$\{(\w+):\?`).FindAllSubmatch(text, -1) {
			require.Contains(t, string(example), "\n"+string(required[1])+"=\n", name)
		}
	}
}

// existing is the path itself, or for a folder a file in it.
func existing(path string) string {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		entries, err := os.ReadDir(path)
		if err == nil {
			for _, e := range entries {
				if !e.IsDir() {
					return filepath.Join(path, e.Name())
				}
			}
			for _, e := range entries {
				return existing(filepath.Join(path, e.Name()))
			}
		}
	}
	return path
}

// manifest is what is checked of a Kubernetes object.
type manifest struct {
	Kind     string
	Metadata struct {
		Name, Namespace string
		Labels          map[string]string
	}
	Data map[string]string
	Spec struct {
		Selector    yaml.Node
		PodSelector struct{ MatchLabels map[string]string } `yaml:"podSelector"`
		Template    struct {
			Metadata struct{ Labels map[string]string }
			Spec     podSpec
		}
	}
}

type podSpec struct {
	AutomountServiceAccountToken *bool `yaml:"automountServiceAccountToken"`
	SecurityContext              struct {
		RunAsNonRoot   bool `yaml:"runAsNonRoot"`
		SeccompProfile struct{ Type string }
	} `yaml:"securityContext"`
	TopologySpreadConstraints []struct{ NodeTaintsPolicy string }
	Containers                []struct {
		Image                                       string
		Args                                        []string
		Ports                                       []struct{ Name string }
		LivenessProbe, ReadinessProbe, StartupProbe *probeSpec
		EnvFrom                                     []struct {
			ConfigMapRef, SecretRef struct{ Name string }
		} `yaml:"envFrom"`
		SecurityContext struct {
			AllowPrivilegeEscalation, ReadOnlyRootFilesystem *bool
			Capabilities                                     struct{ Drop []string }
		} `yaml:"securityContext"`
	}
}

type probeSpec struct {
	HTTPGet struct{ Path, Port string } `yaml:"httpGet"`
}

// UnmarshalYAML takes the keys as Kubernetes writes them: yaml.v3 knows only lower case by itself.
func (p *podSpec) UnmarshalYAML(n *yaml.Node) error {
	type plain podSpec
	lowered := *n
	lowerKeys(&lowered)
	return lowered.Decode((*plain)(p))
}

// lowerKeys writes the keys of all sections but the outermost's tagged ones in lower case.
func lowerKeys(n *yaml.Node) {
	if n.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i]
			if !slices.Contains([]string{"automountServiceAccountToken", "securityContext", "runAsNonRoot", "envFrom",
				"httpGet"}, key.Value) {
				key.Value = strings.ToLower(key.Value)
			}
		}
	}
	for _, child := range n.Content {
		lowerKeys(child)
	}
}

// TestKubernetesManifests renders both overlays and checks what can be checked without Kubernetes.
func TestKubernetesManifests(t *testing.T) {
	t.Parallel()
	kubectl, err := exec.LookPath("kubectl")
	if err != nil {
		t.Skip("kubectl is not in the PATH: install it to render and check the manifests in deploy/kubernetes")
	}
	// A copy, so that the secret's file, which is not committed, can be made.
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join(repository, "deploy/kubernetes"))))
	overlay := filepath.Join(dir, "overlays", "production")
	example, err := os.ReadFile(filepath.Join(overlay, "secret.env.example"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(overlay, "secret.env"), example, 0o600))
	for name, secret := range map[string]bool{"small": false, "production": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var stderr bytes.Buffer
			command := exec.Command(kubectl, "kustomize", filepath.Join(dir, "overlays", name))
			command.Stderr = &stderr
			text, err := command.Output()
			require.NoError(t, err, "%s", &stderr)
			checkManifests(t, text, secret)
		})
	}
}

// TestSpawnerOnKubernetes renders the spawner's manifests and looks at what it may do.
func TestSpawnerOnKubernetes(t *testing.T) {
	t.Parallel()
	kubectl, err := exec.LookPath("kubectl")
	if err != nil {
		t.Skip("kubectl is not in the PATH: install it to render and check the manifests in deploy/kubernetes")
	}
	text, err := exec.Command(kubectl, "kustomize", filepath.Join(repository, "deploy/kubernetes/spawner")).Output()
	require.NoError(t, err)
	rights := map[string][]string{}
	for decoder := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var m struct {
			manifest `yaml:",inline"`
			Rules    []struct{ Resources, Verbs []string }
		}
		err := decoder.Decode(&m)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		require.NotContains(t, m.Kind, "ClusterRole")
		for _, rule := range m.Rules {
			require.Equal(t, "mainstay-agents", m.Metadata.Namespace)
			rights[strings.Join(rule.Resources, ",")] = rule.Verbs
		}
		if m.Kind == "Deployment" {
			c := m.Spec.Template.Spec.Containers[0]
			takes(t, "the spawner", c.Args)
			require.False(t, *c.SecurityContext.AllowPrivilegeEscalation)
		}
	}
	require.Equal(t, map[string][]string{"pods": {"get", "list", "watch", "create", "delete"}, "pods/log": {"get"},
		"secrets": {"create", "delete"}}, rights)
}

func checkManifests(t *testing.T, text []byte, secret bool) {
	t.Helper()
	byKind := map[string][]manifest{}
	for decoder := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var m manifest
		err := decoder.Decode(&m)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		require.True(t, m.Kind == "Namespace" || m.Metadata.Namespace == "mainstay", "%s %s is in no namespace", m.Kind,
			m.Metadata.Name)
		byKind[m.Kind] = append(byKind[m.Kind], m)
	}
	workloads := slices.Concat(byKind["Deployment"], byKind["StatefulSet"])
	require.Len(t, workloads, 4)
	named := func(kind, prefix string) bool {
		return slices.ContainsFunc(byKind[kind], func(m manifest) bool {
			return strings.HasPrefix(m.Metadata.Name,
				prefix)
		})
	}
	selects := func(kind string, labels map[string]string) bool {
		return slices.ContainsFunc(byKind[kind], func(m manifest) bool {
			selector := m.Spec.Selector
			var of struct {
				MatchLabels map[string]string `yaml:"matchLabels"`
			}
			if selector.Decode(&of) != nil || len(of.MatchLabels) == 0 {
				if selector.Decode(&of.MatchLabels) != nil {
					return false
				}
			}
			for label, value := range of.MatchLabels {
				if labels[label] != value {
					return false
				}
			}
			return len(of.MatchLabels) > 0
		})
	}
	for _, w := range workloads {
		where, pod := w.Kind+" "+w.Metadata.Name, w.Spec.Template.Spec
		require.NotNil(t, pod.AutomountServiceAccountToken, where)
		require.False(t, *pod.AutomountServiceAccountToken, where)
		require.True(t, pod.SecurityContext.RunAsNonRoot, where)
		require.True(t, selects("PodDisruptionBudget", w.Spec.Template.Metadata.Labels),
			"%s has no PodDisruptionBudget", where)
		if w.Metadata.Name == "hub" || w.Metadata.Name == "gateway" {
			require.True(t, selects("Service", w.Spec.Template.Metadata.Labels), "%s has no Service", where)
		}
		// else a node that is being drained counts, and its pods wait for it
		for _, spread := range pod.TopologySpreadConstraints {
			require.Equal(t, "Honor", spread.NodeTaintsPolicy, where)
		}
		require.Len(t, pod.Containers, 1)
		c := pod.Containers[0]
		takes(t, where, c.Args)
		require.False(t, *c.SecurityContext.AllowPrivilegeEscalation, where)
		require.True(t, *c.SecurityContext.ReadOnlyRootFilesystem, where)
		require.Equal(t, []string{"ALL"}, c.SecurityContext.Capabilities.Drop, where)
		for _, probe := range []*probeSpec{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
			require.NotNil(t, probe, where)
			require.Equal(t, c.Ports[0].Name, probe.HTTPGet.Port, where)
		}
		require.Equal(t, "/healthz", c.LivenessProbe.HTTPGet.Path,
			"%s: a restart because something else is away helps nobody", where)
		require.Equal(t, "/readyz", c.ReadinessProbe.HTTPGet.Path, where)
		for _, from := range c.EnvFrom {
			require.True(t, from.ConfigMapRef.Name == "" || named("ConfigMap", from.ConfigMapRef.Name), "%s: %s", where,
				from.ConfigMapRef.Name)
			require.True(t, !secret || from.SecretRef.Name == "" || named("Secret", "mainstay-"), where)
		}
	}
	require.Len(t, byKind["PodDisruptionBudget"], 4)
	for _, policy := range []string{"nothing-by-default", "names", "temporal", "agents", "hubs", "gateways",
		"metrics"} {
		require.True(t, named("NetworkPolicy", policy), policy)
	}
}

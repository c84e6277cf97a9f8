package config

import (
	"net/url"
	"strings"
	"time"

	"mainstay.dev/sdk/api"
)

// Spawner starts and stops agents on one platform (role spawner).
type Spawner struct {
	// Platform is where its agents run: process (its own machine), docker, kubernetes, coolify or ec2. Default process.
	Platform api.Platform `json:"platform,omitempty"`
	// MaxAgents bounds the agents that run at a time, 1 to 10000. Default: nothing does.
	MaxAgents int `json:"max_agents,omitempty" minimum:"1" maximum:"10000"`
	// Docker is the engine, for platform docker.
	Docker Docker `json:"docker,omitempty"`
	// Kubernetes is the cluster, for platform kubernetes.
	Kubernetes Kubernetes `json:"kubernetes,omitempty"`
	// Coolify is the server, for platform coolify.
	Coolify Coolify `json:"coolify,omitempty"`
	// EC2 is what the instances have in common, for platform ec2.
	EC2 EC2 `json:"ec2,omitempty"`
	// Name is the spawner's own, unique in the installation; a restarted one keeps it. Default: the host's name.
	Name string `json:"name,omitempty"`
	// Dir holds the records of its processes, and their logs. Default mainstay-spawner.
	Dir string `json:"dir,omitempty"`
	// HubURLs are the hubs that its agents dial. Default: the hub of the same process.
	HubURLs []string `json:"hub_urls,omitempty"`
	// Command starts an agent, program first; it finds its settings in its environment. Default: mainstay agent run.
	Command []string `json:"command,omitempty"`
	// AllowExec lets the agents run any command that is submitted, where Command is left out. Default false.
	AllowExec bool `json:"allow_exec,omitempty"`
	// Slots is how many tasks an agent runs at a time when its cluster does not say, 1 to 10000. Default 1.
	Slots int `json:"slots,omitempty" minimum:"1" maximum:"10000"`
	// StopGrace is how long an agent has between being asked to stop and being killed, 1s to 1h. Default 40s.
	StopGrace api.Duration `json:"stop_grace,omitempty" least:"1s" most:"1h"`
}

// Docker is a Docker engine and what its containers have in common.
type Docker struct {
	// Engine is its address, such as unix:///run/docker.sock or tcp://10.0.0.5:2376. Default: DOCKER_HOST, else the
	// local socket.
	Engine string `json:"engine,omitempty"`
	// TLSCA, TLSCert and TLSKey are files with which it is reached over TLS; all three or none. Default: without.
	TLSCA   string `json:"tls_ca,omitempty"`
	TLSCert string `json:"tls_cert,omitempty"`
	TLSKey  string `json:"tls_key,omitempty"`
	// Image is the image of agents whose cluster names none. Default: they are refused.
	Image string `json:"image,omitempty"`
	// Network is the containers' network, such as host. Default: the engine's.
	Network string `json:"network,omitempty"`
}

// Kubernetes is a namespace of a Kubernetes cluster and what its pods have in common.
type Kubernetes struct {
	// Kubeconfig is a file that says how the API is reached, and Context the one of its contexts. Default: KUBECONFIG
	// or ~/.kube/config, else the service account of the spawner's own pod.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	Context    string `json:"context,omitempty"`
	// Namespace is the pods' namespace. Default: the context's, or the one of the spawner's own pod.
	Namespace string `json:"namespace,omitempty"`
	// ServiceAccount is the pods' account, whose token they see. Default: the namespace's, without its token.
	ServiceAccount string `json:"service_account,omitempty"`
	// PodTemplate is a file with what all pods have in common, as a PodTemplateSpec in YAML. Default: nothing.
	PodTemplate string `json:"pod_template,omitempty"`
	// Image is the image of agents whose cluster names none. Default: they are refused.
	Image string `json:"image,omitempty"`
}

// Coolify is a Coolify server and where its applications are made.
type Coolify struct {
	// URL is the server's, such as https://coolify.example.com.
	URL string `json:"url,omitempty"`
	// TokenFile is a file with a token of its API that may read, write and deploy.
	TokenFile string `json:"token_file,omitempty"`
	// Server and Project are the uuids of a server and a project, and Environment is the name of the project's
	// environment. Default of Environment: production.
	Server      string `json:"server,omitempty"`
	Project     string `json:"project,omitempty"`
	Environment string `json:"environment,omitempty"`
	// Destination is the uuid of the server's network. Default: the server has one.
	Destination string `json:"destination,omitempty"`
	// Image is the image of agents whose cluster names none. Default: they are refused.
	Image string `json:"image,omitempty"`
}

// EC2 is what instances of Amazon EC2 have in common. The AWS SDK finds the credentials. Fields left out come from the
// launch template, else from AWS's defaults.
type EC2 struct {
	// Region is AWS's, such as eu-central-1. Default: AWS_REGION, else that of the profile.
	Region string `json:"region,omitempty"`
	// LaunchTemplate is the id or the name of a launch template, and LaunchTemplateVersion its version. Default: none.
	LaunchTemplate        string `json:"launch_template,omitempty"`
	LaunchTemplateVersion string `json:"launch_template_version,omitempty"`
	// Image, an AMI, and InstanceType are for agents whose cluster names none.
	Image        string `json:"image,omitempty"`
	InstanceType string `json:"instance_type,omitempty"`
	// Subnet and SecurityGroup are ids, InstanceProfile is a name.
	Subnet          string `json:"subnet,omitempty"`
	SecurityGroup   string `json:"security_group,omitempty"`
	InstanceProfile string `json:"instance_profile,omitempty"`
	// User is the image's user that agents run as. Default root.
	User string `json:"user,omitempty"`
}

func (s *Spawner) fill() {
	orDefault(&s.Platform, api.PlatformProcess)
	orDefault(&s.Dir, "mainstay-spawner")
	if s.Platform == api.PlatformCoolify {
		orDefault(&s.Coolify.Environment, "production")
	}
	orDefault(&s.Slots, 1)
	orDefault(&s.StopGrace, api.Duration(40*time.Second))
}

func (k *checker) spawner(s *Spawner) {
	if s.Name != "" {
		k.id("spawner.name", s.Name)
	}
	for _, raw := range s.HubURLs {
		u, err := url.Parse(raw)
		k.check(err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "", "spawner.hub_urls",
			"must be URLs like http://10.0.0.5:8080")
	}
	k.check(len(s.Command) == 0 || s.Command[0] != "", "spawner.command", "must begin with a program")
	switch s.Platform {
	case api.PlatformProcess, api.PlatformDocker, api.PlatformKubernetes:
	case api.PlatformCoolify:
		c := &s.Coolify
		k.check(strings.HasPrefix(c.URL, "http") && c.TokenFile != "" && c.Server != "" && c.Project != "",
			"spawner.coolify", "must have url, token_file, server and project")
		k.check(len(s.Command) == 0 && !s.AllowExec, "spawner.platform",
			"coolify runs images as they are: leave out spawner.command and spawner.allow_exec")
	case api.PlatformEC2:
		k.check(s.EC2.LaunchTemplate != "" || s.EC2.InstanceType != "", "spawner.ec2",
			"must have launch_template or instance_type")
		if s.EC2.User != "" {
			k.id("spawner.ec2.user", s.EC2.User)
		}
	default:
		k.check(false, "spawner.platform", "must be process, docker, kubernetes, coolify or ec2")
	}
	for platform, set := range map[api.Platform]bool{api.PlatformDocker: s.Docker != Docker{},
		api.PlatformKubernetes: s.Kubernetes != Kubernetes{}, api.PlatformCoolify: s.Coolify != Coolify{},
		api.PlatformEC2: s.EC2 != EC2{}} {
		k.check(!set || s.Platform == platform, "spawner."+string(platform),
			"has no effect: set spawner.platform to %s too", platform)
	}
	given := 0
	for _, file := range []string{s.Docker.TLSCA, s.Docker.TLSCert, s.Docker.TLSKey} {
		if file != "" {
			given++
		}
	}
	k.check(given == 0 || given == 3,
		"spawner.docker.tls_ca", "must be given with tls_cert and tls_key, or none of them")
	k.within("spawner", *s)
}

package config

import (
	"net/url"
	"time"

	"mainstay.dev/mainstay/fleet"
)

// Spawner starts and stops agents as processes of its own machine (role spawner).
type Spawner struct {
	// Name is the spawner's own, unique in the installation; a restarted one keeps it. Default: the host's name.
	Name string `yaml:"name"`
	// Dir holds what it knows of its agents, and their logs. Default mainstay-spawner.
	Dir string `yaml:"dir"`
	// HubURLs are the hubs that its agents dial. Default: the hub of the same process.
	HubURLs []string `yaml:"hub_urls"`
	// Command starts an agent, program first; it finds its settings in its environment. Default: mainstay agent run.
	Command []string `yaml:"command"`
	// AllowExec lets the agents run any command that is submitted, where Command is left out. Default false.
	AllowExec bool `yaml:"allow_exec"`
	// Slots is how many tasks an agent runs at a time when its cluster does not say, 1 to 10000. 0: 1.
	Slots int `yaml:"slots"`
	// StopGrace is how long an agent has between being asked to stop and being killed, 1s to 1h. 0: 40s.
	StopGrace fleet.Duration `yaml:"stop_grace"`
}

func (s *Spawner) fill() {
	orDefault(&s.Dir, "mainstay-spawner")
	orDefault(&s.Slots, 1)
	orDefault(&s.StopGrace, fleet.Duration(40*time.Second))
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
	k.count("spawner.slots", s.Slots, 0, 10_000)
	k.duration("spawner.stop_grace", s.StopGrace, minPeriod, time.Hour)
}

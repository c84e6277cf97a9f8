package spawner

import (
	"cmp"
	"fmt"
	"time"

	"go.uber.org/zap"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/sdk/api"
)

// DefaultStopGrace is how long an agent has between being asked to stop and being killed: longer than agents take by
// default.
const DefaultStopGrace = 40 * time.Second

// defaultKeep is longer than a start of an agent is repeated.
const defaultKeep = 3 * time.Minute

// Options are common to the spawners of all platforms.
type Options struct {
	// Name is the spawner's own. No other spawner of its platform may have it.
	Name string
	// HubURLs are handed to the agents.
	HubURLs []string
	// Image is the image of agents whose cluster names none, on platforms with images; empty: they are refused.
	Image string
	// Command is the command line of an agent, program first; an empty program is the image's entrypoint. nil, or no
	// command: what the image runs. The agent finds its settings in its environment too.
	Command func(spec cluster.SpawnSpec) []string
	// JoinToken makes the token with which an agent registers; it reaches the agent as a file. nil: none.
	JoinToken JoinToken
	// HubCA is the certificate authority of the hubs, in PEM; nil: agents trust those of their image.
	HubCA []byte
	// Slots is how many tasks an agent runs at a time when its cluster does not say. 0 means 1.
	Slots int
	// StopGrace is how long an agent has between being asked to stop and being killed. 0 means DefaultStopGrace.
	StopGrace time.Duration
	// Keep is how long the remains of an ended agent stay, with its log. 0 means 3 minutes.
	Keep   time.Duration
	Logger *zap.Logger // nil: nothing is logged
}

// Fill sets the defaults.
func (o *Options) Fill() error {
	o.Slots, o.Keep = cmp.Or(o.Slots, 1), cmp.Or(o.Keep, defaultKeep)
	o.StopGrace = cmp.Or(o.StopGrace, DefaultStopGrace)
	o.Logger = cmp.Or(o.Logger, zap.NewNop())
	return api.ValidateID("the spawner's name", o.Name)
}

// ImageOf is the image of an agent.
func (o *Options) ImageOf(spec *cluster.SpawnSpec) (string, error) {
	image := cmp.Or(spec.Image, o.Image)
	if image == "" {
		return "", fmt.Errorf("%w: neither scaling.spawn.image of the cluster nor the spawner's configuration names an image",
			ErrRefused)
	}
	return image, nil
}

// CommandOf is the command line of an agent; nil: what the image runs.
func (o *Options) CommandOf(spec *cluster.SpawnSpec) []string {
	if o.Command == nil {
		return nil
	}
	return o.Command(*spec)
}

// FilesDir is where agents on other machines find the files of Files.
const FilesDir = "/run/mainstay"

// The files of FilesDir.
const (
	TokenFile = "join-token"
	CAFile    = "ca.pem"
)

// Files are the files of an agent: its join token, made anew, and the authority of its hubs.
func (o *Options) Files(spec *cluster.SpawnSpec) (map[string][]byte, error) {
	files := map[string][]byte{}
	if o.JoinToken != nil {
		token, err := o.JoinToken(*spec)
		if err != nil {
			return nil, fmt.Errorf("make the agent's join token: %w", err)
		}
		files[TokenFile] = []byte(token)
	}
	if o.HubCA != nil {
		files[CAFile] = o.HubCA
	}
	return files, nil
}

// FileEnvironment names the files of an agent in its environment.
func (o *Options) FileEnvironment() (env []string) {
	if o.JoinToken != nil {
		env = append(env, EnvJoinTokenFile+"="+FilesDir+"/"+TokenFile)
	}
	if o.HubCA != nil {
		env = append(env, "MAINSTAY_CA="+FilesDir+"/"+CAFile)
	}
	return env
}

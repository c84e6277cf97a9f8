package config

import (
	"cmp"
	"fmt"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
)

// TemporalClientOptions says how to reach Temporal. The TEMPORAL_* variables that the temporal CLI knows win, then the
// profile of Temporal's own file when TEMPORAL_CONFIG_FILE or TEMPORAL_PROFILE asks for it, then the temporal section.
func (c *Config) TemporalClientOptions() (client.Options, error) {
	return c.temporalClientOptions(envconfig.EnvLookupOS)
}

func (c *Config) temporalClientOptions(env envconfig.EnvLookup) (client.Options, error) {
	file, _ := env.LookupEnv("TEMPORAL_CONFIG_FILE")
	profileName, _ := env.LookupEnv("TEMPORAL_PROFILE")
	profile, err := envconfig.LoadClientConfigProfile(envconfig.LoadClientConfigProfileOptions{
		// A file that happens to lie in the user's home must not overrule ours.
		DisableFile: file == "" && profileName == "",
		EnvLookup:   env,
	})
	if err != nil {
		return client.Options{}, fmt.Errorf("read Temporal's settings from the environment: %w", err)
	}
	profile.Address = cmp.Or(profile.Address, c.Temporal.Address)
	profile.Namespace = cmp.Or(profile.Namespace, c.Temporal.Namespace)
	options, err := profile.ToClientOptions(envconfig.ToClientOptionsRequest{})
	if err != nil {
		return client.Options{}, fmt.Errorf("apply Temporal's settings (TEMPORAL_* and the temporal section): %w", err)
	}
	return options, nil
}

package controlplane

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/contrib/envconfig"

	"mainstay.dev/mainstay/internal/config"
)

type environment map[string]string

func (e environment) Environ() (all []string) {
	for key, value := range e {
		all = append(all, key+"="+value)
	}
	return all
}

func (e environment) LookupEnv(key string) (string, bool) {
	value, found := e[key]
	return value, found
}

func TestTemporalClientOptions(t *testing.T) {
	t.Parallel()
	profile := filepath.Join(t.TempDir(), "temporal.toml")
	require.NoError(t, os.WriteFile(profile, []byte("[profile.default]\naddress = \"toml:7233\"\n"), 0o600))
	c, err := config.Parse("f.yaml", []byte("temporal: {address: \"yaml:7233\", namespace: ours}"))
	require.NoError(t, err)

	for name, tc := range map[string]struct {
		env                environment
		address, namespace string
		tls, key           bool
	}{
		"the file": {environment{}, "yaml:7233", "ours", false, false},
		"empty variables": {environment{"TEMPORAL_ADDRESS": "", "TEMPORAL_NAMESPACE": ""}, "yaml:7233", "ours",
			false, false},
		"address":              {environment{"TEMPORAL_ADDRESS": "env:7233"}, "env:7233", "ours", false, false},
		"namespace":            {environment{"TEMPORAL_NAMESPACE": "theirs"}, "yaml:7233", "theirs", false, false},
		"API key turns TLS on": {environment{"TEMPORAL_API_KEY": "k"}, "yaml:7233", "ours", true, true},
		"TLS":                  {environment{"TEMPORAL_TLS": "true"}, "yaml:7233", "ours", true, false},
		"Temporal's own file":  {environment{"TEMPORAL_CONFIG_FILE": profile}, "toml:7233", "ours", false, false},
		"variables over it": {environment{"TEMPORAL_CONFIG_FILE": profile, "TEMPORAL_ADDRESS": "env:7233"},
			"env:7233", "ours", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options, err := clientOptions(c.Temporal, tc.env)
			require.NoError(t, err)
			require.Equal(t, tc.address, options.HostPort)
			require.Equal(t, tc.namespace, options.Namespace)
			require.Equal(t, tc.tls, options.ConnectionOptions.TLS != nil)
			require.Equal(t, tc.key, options.Credentials != nil)
		})
	}
}

func TestTemporalClientOptionsErrors(t *testing.T) {
	t.Parallel()
	for name, env := range map[string]environment{
		"no such key": {"TEMPORAL_TLS_CLIENT_CERT_PATH": filepath.Join(t.TempDir(), "none.pem")},
		"no profile":  {"TEMPORAL_PROFILE": "none", "TEMPORAL_CONFIG_FILE": filepath.Join(t.TempDir(), "none.toml")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := clientOptions(config.Default().Temporal, env)
			require.ErrorContains(t, err, "Temporal's settings")
		})
	}
}

// The process's own environment is read, so this test runs alone.
func TestTemporalClientOptionsOfProcess(t *testing.T) {
	t.Setenv("TEMPORAL_CONFIG_FILE", "")
	t.Setenv("TEMPORAL_PROFILE", "")
	t.Setenv("TEMPORAL_NAMESPACE", "from-env")
	options, err := clientOptions(config.Default().Temporal, envconfig.EnvLookupOS)
	require.NoError(t, err)
	require.Equal(t, "from-env", options.Namespace)
}

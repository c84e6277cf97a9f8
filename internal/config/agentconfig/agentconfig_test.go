package agentconfig_test

import (
	"bytes"
	"os"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"mainstay.dev/mainstay/internal/config/agentconfig"
)

// TestTheFileIsReadAsItsSchemaSays compares what is read with what the JSON Schema accepts, both ways.
func TestTheFileIsReadAsItsSchemaSays(t *testing.T) {
	t.Parallel()
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(agentconfig.Schema()))
	require.NoError(t, err)
	compiler := jsonschema.NewCompiler()
	require.NoError(t, compiler.AddResource("agent", document))
	schema, err := compiler.Compile("agent")
	require.NoError(t, err)
	example, err := os.ReadFile("../../../deploy/agent.yaml")
	require.NoError(t, err)
	for text, wrong := range map[string]string{
		string(example):                          "",
		"{}":                                     "",
		"agent:":                                 "",
		"agent: {slots: 4, capabilities: [gpu]}": "",
		"agent: {metadata: {rack: '7'}, allow_exec: true}": "",
		"health_check: {port: 0, path: /alive, host: ''}":  "",
		"health_check: {path: ''}":                         "",
		"agent: {slots: 0}":                                "agent.slots",
		"agent: {slots: 10001}":                            "agent.slots",
		"agent: {slots:}":                                  "agent.slots",
		"agent: {slots: four}":                             "agent.slots",
		"agent: {slots: 1.5}":                              "agent.slots",
		"agent: {capabilities: gpu}":                       "agent.capabilities: must be a list",
		"agent: {capabilities: [1]}":                       "agent.capabilities[0]",
		"agent: {metadata: {rack: 7}}":                     "agent.metadata.rack",
		"agent: {capabilitys: [gpu]}":                      "did you mean capabilities?",
		"agent: {allow_exec: 1}":                           "agent.allow_exec: must be true or false",
		"agents: {}":                                       "did you mean agent?",
		"agent: [a]":                                       "agent: must be a section",
		"health_check: {port: 65536}":                      "health_check.port",
		"health_check: {path: alive}":                      "health_check.path: must be a path like /health",
		"heartbeat: {interval_seconds: 0}":                 "heartbeat.interval_seconds",
		"graceful_shutdown: {timeout_seconds: 86401}":      "graceful_shutdown.timeout_seconds",
	} {
		_, err := agentconfig.Parse("agent.yaml", []byte(text))
		if wrong == "" {
			require.NoError(t, err, text)
		} else {
			require.ErrorContains(t, err, wrong, text)
		}
		var value any
		require.NoError(t, yaml.Unmarshal([]byte(text), &value))
		require.Equal(t, wrong == "", schema.Validate(value) == nil, "the schema, of %s", text)
	}
}

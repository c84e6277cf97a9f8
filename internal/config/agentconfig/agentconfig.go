// Package agentconfig is the file of `mainstay agent run --config`.
package agentconfig

import (
	"encoding/json"
	"fmt"
	"reflect"
	"sync"

	"mainstay.dev/mainstay/internal/config/document"
	"mainstay.dev/mainstay/internal/textfile"
)

// DefaultHealthPort is where an agent serves its probes.
const DefaultHealthPort = 9091

// File is the content of the file. Every section and every key may be left out.
type File struct {
	Agent            Agent       `json:"agent,omitempty" doc:"What the flags say; a flag wins."`
	Heartbeat        Heartbeat   `json:"heartbeat,omitempty" doc:"What the agent expects of its hubs, which set both. The agent warns of a hub with longer times."`
	HealthCheck      HealthCheck `json:"health_check,omitempty" doc:"Where it serves its health probes."`
	GracefulShutdown Shutdown    `json:"graceful_shutdown,omitempty" doc:"How it stops."`
}

// Agent has the settings that flags have too; a key that differs from its flag has the flag in its doc.
type Agent struct {
	AgentID          string            `json:"agent_id,omitempty" doc:"Unique in the installation. Default: the host's name and something random. As --id."`
	Address          string            `json:"address,omitempty" doc:"Where people and tools reach it. Default: where it registers from."`
	AvailabilityZone string            `json:"availability_zone,omitempty" doc:"Its zone. As --zone."`
	AgentGroup       string            `json:"agent_group,omitempty" doc:"Its group. As --group."`
	Hubs             []string          `json:"hubs,omitempty" doc:"The hubs, as http://hub-1:8080. As --hub."`
	Cluster          string            `json:"cluster,omitempty" doc:"The cluster that it joins."`
	Slots            int               `json:"slots,omitempty" minimum:"1" maximum:"10000" doc:"How many attempts it runs at a time."`
	Capabilities     []string          `json:"capabilities,omitempty" doc:"What it can do, for tasks that require it."`
	Providers        []string          `json:"providers,omitempty" doc:"Outside services that it has access to."`
	Metadata         map[string]string `json:"metadata,omitempty" doc:"Names and values that people see."`
	AllowExec        bool              `json:"allow_exec,omitempty" doc:"It runs commands: whoever may submit tasks may run anything as its user."`
	ExecEnv          []string          `json:"exec_env,omitempty" doc:"Variables of its own that commands see."`
	JoinTokenFile    string            `json:"join_token_file,omitempty" doc:"A file with its join token."`
	CA               string            `json:"ca,omitempty" doc:"A file with the certificates of authorities that it trusts."`
	Cert             string            `json:"cert,omitempty" doc:"A file with its client certificate."`
	Key              string            `json:"key,omitempty" doc:"A file with the certificate's key."`
	HealthFile       string            `json:"health_file,omitempty" doc:"A file in which a check of yours writes its health."`
	MCP              string            `json:"mcp,omitempty" doc:"A file with servers of tools."`
	Models           string            `json:"models,omitempty" doc:"A file with providers of models."`
	Resources        string            `json:"resources,omitempty" doc:"A file with what tasks may ask for."`
	Ports            string            `json:"ports,omitempty" doc:"Ports for tasks that ask for one, as 20000-21000."`
	Volumes          []string          `json:"volumes,omitempty" doc:"Folders that tasks may ask for, as NAME=PATH. As --volume."`
}

// Heartbeat is what the agent expects of its hubs.
type Heartbeat struct {
	IntervalSeconds int `json:"interval_seconds,omitempty" minimum:"1" maximum:"86400" doc:"Between two heartbeats, at most."`
	TimeoutSeconds  int `json:"timeout_seconds,omitempty" minimum:"1" maximum:"86400" doc:"Without a heartbeat until the agent counts as lost, at most."`
}

// HealthCheck is where an agent serves its health probes.
type HealthCheck struct {
	Host string `json:"host,omitempty" doc:"Default 127.0.0.1."`
	Port *int   `json:"port,omitempty" minimum:"0" maximum:"65535" doc:"Default 9091. 0: no probes."`
	Path string `json:"path,omitempty" pattern:"^(/|$)" doc:"Default /health. /readyz and /healthz stay where they are."`
}

// Shutdown is how an agent stops.
type Shutdown struct {
	TimeoutSeconds int `json:"timeout_seconds,omitempty" minimum:"1" maximum:"86400" doc:"How long a stop waits for running tasks before it hands them back. As --stop-timeout."`
}

// Read reads and checks a file.
func Read(path string) (*File, error) {
	text, err := textfile.Read(path)
	if err != nil {
		return nil, fmt.Errorf("read the agent's configuration: %w", err)
	}
	return Parse(path, text)
}

// Parse reads and checks the text of a file. Its error is a *document.Error.
func Parse(name string, text []byte) (*File, error) {
	f := &File{}
	places, err := document.Read(name, text, f, nil)
	if err != nil {
		return nil, err
	}
	if path := f.HealthCheck.Path; path != "" && path[0] != '/' {
		return nil, &document.Error{Problems: []document.Problem{
			places.Place("health_check.path", "must be a path like /health")}}
	}
	return f, nil
}

// HealthPort is the port of the probes; 0: there are none.
func (f *File) HealthPort() int {
	if f.HealthCheck.Port == nil {
		return DefaultHealthPort
	}
	return *f.HealthCheck.Port
}

// Schema is the JSON Schema of the file, for editors.
var Schema = sync.OnceValue(func() json.RawMessage {
	text, err := document.Indented("The configuration of an agent of Mainstay",
		(&document.Describer{}).Describe(reflect.TypeFor[File]()))
	if err != nil {
		panic(err) //nolint:forbidigo // the types that are described are in this program
	}
	return text
})

package api

import (
	"time"
)

// Service is a service as a list has it.
type Service struct {
	Name      string `json:"name" doc:"With its tenant before it, if it has one."`
	Instances int    `json:"instances"`
	Passing   int    `json:"passing"`
}

// ServiceInstance is an instance that offers a service.
type ServiceInstance struct {
	Job      string         `json:"job"`
	Instance string         `json:"instance" doc:"Its number, or its agent."`
	Version  int            `json:"version" doc:"Of the job's definition."`
	TaskID   string         `json:"task_id"`
	Agent    string         `json:"agent"`
	Cluster  string         `json:"cluster"`
	Zone     string         `json:"zone,omitempty"`
	Address  string         `json:"address" doc:"Where it can be reached: its agent's host, with its port."`
	Tags     []string       `json:"tags,omitempty"`
	Role     InstanceRole   `json:"role" enum:"stable,canary" doc:"canary: of a version that is not promoted yet."`
	Health   InstanceHealth `json:"health" enum:"starting,passing,failing"`
	Since    time.Time      `json:"since" doc:"When it began."`
}

// ServiceInstances are the instances that offer a service.
type ServiceInstances struct {
	Name      string            `json:"name"`
	Index     string            `json:"index" doc:"Changes with the instances. Sent with wait, it holds the answer until they change."`
	Instances []ServiceInstance `json:"instances"`
}

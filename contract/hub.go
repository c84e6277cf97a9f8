package contract

// HubInput starts a Hub workflow.
type HubInput struct {
	Hub string `json:"hub"`
}

// HubStartedSignal says that a new process plays the hub: the lease is held anew. Its argument is HubStarted.
const HubStartedSignal = "started"

// HubStarted names the process.
type HubStarted struct {
	Instance string `json:"instance_id"`
	Host     string `json:"host"`
	PID      int    `json:"pid"`
}

// HoldLeaseInput is the input of HoldLeaseActivity.
type HoldLeaseInput struct {
	Hub string `json:"hub"`
}

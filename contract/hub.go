package contract

// HubInput starts a Hub workflow.
type HubInput struct {
	Hub string `json:"hub"`
}

// Messages of the Hub workflow.
var (
	// HubStartedSignal says that a new process plays the hub: the lease is held anew.
	HubStartedSignal = Signal[HubStarted]{"started"}
	// HoldLeaseActivity runs on a hub's own queue for as long as the hub lives; its heartbeat is the hub's lease.
	HoldLeaseActivity = Activity[HoldLeaseInput, None]{"HoldLease"}
	// AnnounceHubLostActivity tells every cluster that a hub is lost.
	AnnounceHubLostActivity = Activity[HubLost, None]{"AnnounceHubLost"}
)

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

package api

// Evidence is the sign by which an agent was given up.
type Evidence string

// The kinds of evidence.
const (
	EvidenceClosed      Evidence = "connection_closed" // its connection closed, and it did not come back in time
	EvidenceUnreachable Evidence = "unreachable"       // the kernel found that its host does not answer
	EvidenceSilence     Evidence = "silence"           // its connection is open and it does not poll
	EvidenceProof       Evidence = "proof"             // who started it, or a person, says that it has ended
	EvidenceHubLost     Evidence = "hub_lost"          // it did not come back after its hub was lost, or restarted
)

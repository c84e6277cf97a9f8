package statesync

// Bounds of the state that an agent keeps.
const (
	// StateChunk is the approximate number of bytes of entries in one message.
	StateChunk = 256 << 10
)

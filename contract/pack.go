package contract

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
)

const (
	// packFrom is the length of JSON from which a message is compressed. Temporal takes messages of up to 2 MiB, and
	// the state of a cluster with thousands of members is longer.
	packFrom = 512 << 10
	// maxUnpacked bounds what a packed message may hold.
	maxUnpacked = 64 << 20
)

// packedMessage stands for a long message.
type packedMessage struct {
	Gzip []byte `json:"gzip"`
}

// pack is a message as JSON.
func pack(message any) ([]byte, error) {
	data, err := json.Marshal(message)
	if err != nil || len(data) < packFrom {
		return data, err
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(data); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return json.Marshal(packedMessage{packed.Bytes()})
}

// unpack is the inverse of pack. It reads messages that were never packed, too.
func unpack(data []byte, message any) error {
	if !bytes.HasPrefix(data, []byte(`{"gzip":`)) {
		return json.Unmarshal(data, message)
	}
	var packed packedMessage
	if err := json.Unmarshal(data, &packed); err != nil {
		return err
	}
	z, err := gzip.NewReader(bytes.NewReader(packed.Gzip))
	if err != nil {
		return fmt.Errorf("read a packed message: %w", err)
	}
	if data, err = io.ReadAll(io.LimitReader(z, maxUnpacked)); err != nil {
		return fmt.Errorf("read a packed message: %w", err)
	}
	return json.Unmarshal(data, message)
}

type (
	plainClusterInput ClusterInput
	plainClusterView  ClusterView
)

// MarshalJSON compresses a large state.
func (in ClusterInput) MarshalJSON() ([]byte, error) { return pack(plainClusterInput(in)) }

// UnmarshalJSON reads a state, compressed or not.
func (in *ClusterInput) UnmarshalJSON(data []byte) error {
	return unpack(data, (*plainClusterInput)(in))
}

// MarshalJSON compresses a large view.
func (v ClusterView) MarshalJSON() ([]byte, error) { return pack(plainClusterView(v)) }

// UnmarshalJSON reads a view, compressed or not.
func (v *ClusterView) UnmarshalJSON(data []byte) error { return unpack(data, (*plainClusterView)(v)) }

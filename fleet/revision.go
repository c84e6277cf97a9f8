package fleet

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
)

// Revision names a configuration: equal configurations have equal revisions. A default that is written out makes no
// difference.
func (c ClusterConfig) Revision() string {
	//workflowcheck:ignore
	text, err := json.Marshal(c.WithDefaults()) // maps are written in the order of their keys
	if err != nil {
		return "" // only numbers that JSON has no form for, which Validate refuses
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// RevisionIs reports whether the configuration is of one of the revisions; of none given, it always is.
func (c ClusterConfig) RevisionIs(revisions []string) bool {
	return len(revisions) == 0 || slices.Contains(revisions, c.Revision())
}

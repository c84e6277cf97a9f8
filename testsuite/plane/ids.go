package plane

import (
	"fmt"
	"os"
	"sync/atomic"
)

var ids atomic.Int64

// UniqueID returns an id that no other test of this machine uses.
func UniqueID(prefix string) string { return fmt.Sprintf("%s-%d-%d", prefix, os.Getpid(), ids.Add(1)) }

package gateway

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"encoding/hex"
	"time"
)

// sortable is base32 in the order of its characters' bytes, so that encoded ids sort as the bytes do.
var sortable = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// newTaskID is "t-" and a ULID-like id: 48 bits of milliseconds, then 80 random bits.
func newTaskID() string { return taskIDAt(time.Now()) }

func taskIDAt(now time.Time) string {
	var id [16]byte
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(now.UnixMilli()))
	copy(id[:6], ms[2:])
	_, _ = rand.Read(id[6:]) // never fails: crypto/rand ends the program instead
	return "t-" + sortable.EncodeToString(id[:])
}

// keyedTaskID is the id of the one task that an idempotency key may start in a tenant's cluster.
func keyedTaskID(tenant, cluster, key string) string {
	h := sha256.New()
	for _, part := range []string{tenant, cluster, key} {
		h.Write([]byte(part))
		h.Write([]byte{0})
	}
	return "k-" + hex.EncodeToString(h.Sum(nil)[:20])
}

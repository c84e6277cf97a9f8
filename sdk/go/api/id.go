package api

import (
	"crypto/rand" //nolint:depguard // clients make ids too, and nobody may guess them
	"encoding/base32"
	"encoding/binary"
	"time"
)

// sortable is base32 in the order of its characters' bytes, so that encoded ids sort as the bytes do.
var sortable = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// NewTaskID is "t-" and 32 characters: 48 bits of milliseconds, then 112 random bits, so that nobody can guess it.
func NewTaskID() string {
	var id [20]byte
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(time.Now().UnixMilli()))
	copy(id[:6], ms[2:])
	_, _ = rand.Read(id[6:]) // never fails: crypto/rand ends the program instead
	return "t-" + sortable.EncodeToString(id[:])
}

// NewArrayID is the same for an array, with "a-".
func NewArrayID() string { return "a" + NewTaskID()[1:] }

// NewRunID is the same for a run, with "r-".
func NewRunID() string { return "r" + NewTaskID()[1:] }

package bench

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// wal is a write-ahead log with frames of one page of 512 bytes; true: a commit.
func wal(salt byte, frames ...bool) []byte {
	header := make([]byte, walHeader)
	binary.BigEndian.PutUint32(header[8:], 512)
	header[16] = salt
	for _, commit := range frames {
		frame := make([]byte, walFrame+512)
		if commit {
			binary.BigEndian.PutUint32(frame[walFrameCommit:], 9)
		}
		frame[walFrameSalt] = salt
		header = append(header, frame...)
	}
	return header
}

func TestWALPosition(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "wal")
	var at walPosition
	read := func(content []byte, transactions, pages int64) {
		t.Helper()
		if content != nil {
			require.NoError(t, os.WriteFile(path, content, 0o600))
		}
		grown, err := at.read(path)
		require.NoError(t, err)
		require.Equal(t, databaseWrites{Transactions: transactions, Pages: pages}, grown)
	}
	read(nil, 0, 0)
	read([]byte{}, 0, 0)
	read(wal(1, false, true, true), 2, 3)
	read(nil, 0, 0)
	read(wal(1, false, true, true, true), 1, 1)
	anew := wal(2, true)
	// what is left of the round before does not count
	read(append(anew, wal(1, false, true, true)[walHeader+walFrame+512:]...), 1, 1)
}

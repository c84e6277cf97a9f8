package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"
)

const (
	walHeader      = 32 // bytes of the file's header, and of each frame's below
	walFrame       = 24
	walLook        = 50 * time.Millisecond
	walFrameCommit = 4 // where a frame has the database's size after a commit; 0: no commit
	walFrameSalt   = 8
)

// databaseWrites is what SQLite has written to its write-ahead log.
type databaseWrites struct {
	Transactions int64 `json:"transactions"`
	Pages        int64 `json:"pages"`
}

// watchWAL counts the transactions and pages that reach a write-ahead log until ctx ends. Frames that a checkpoint
// makes SQLite write over are counted before, as long as it does not fill the log within walLook.
func watchWAL(ctx context.Context, path string) (databaseWrites, error) {
	var writes databaseWrites
	var at walPosition
	if _, err := at.read(path); err != nil {
		return writes, err
	}
	tick := time.NewTicker(walLook)
	defer tick.Stop()
	for {
		grown, err := at.read(path)
		if err != nil {
			return writes, err
		}
		writes.Transactions += grown.Transactions
		writes.Pages += grown.Pages
		select {
		case <-tick.C:
		case <-ctx.Done():
			return writes, nil
		}
	}
}

// walPosition is how far a log was read: the salt of its present round, and the frames of that.
type walPosition struct {
	salt   [8]byte
	frames int64
}

// read counts what is new since the last time.
func (p *walPosition) read(path string) (grown databaseWrites, err error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return grown, nil
	}
	if err != nil {
		return grown, fmt.Errorf("read the database's log: %w", err)
	}
	defer func() { _ = file.Close() }()
	var header [walHeader]byte
	if _, err := io.ReadFull(file, header[:]); err != nil {
		return grown, nil // it is empty still
	}
	page := int64(binary.BigEndian.Uint32(header[8:]))
	if salt := [8]byte(header[16:24]); salt != p.salt {
		p.salt, p.frames = salt, 0 // begun anew after a checkpoint
	}
	for {
		var frame [walFrame]byte
		if _, err := file.ReadAt(frame[:], walHeader+p.frames*(walFrame+page)); err != nil {
			return grown, nil // the end
		}
		if [8]byte(frame[walFrameSalt:walFrameSalt+8]) != p.salt {
			return grown, nil // of an earlier round
		}
		p.frames++
		grown.Pages++
		if binary.BigEndian.Uint32(frame[walFrameCommit:]) != 0 {
			grown.Transactions++
		}
	}
}

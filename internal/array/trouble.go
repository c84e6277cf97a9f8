package array

import (
	"bufio"
	"bytes"
	"compress/flate"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
)

// trouble is the record of an element that is delivered again.
type trouble struct {
	Number   int
	Attempts int        // so far
	Tally    task.Tally // of task.Redeliver
	Size     int        // of the largest bundle that it may be in; 0: any
	Suspect  bool       // it may have ended its agents: it is delivered with no other suspect
	At       time.Time  // not before
}

// troubles are the records of all elements. Finding, keeping and forgetting one takes the same time however many there
// are: all elements under way, 51,200 at most, may fail together, and a person may cancel them together.
type troubles struct {
	of     []*trouble // by number; nil: nothing is known
	count  int
	halved int // how many may be in small bundles only
}

// find is the record of an element; nil: there is none.
func (l *troubles) find(n int) *trouble {
	if n >= len(l.of) {
		return nil
	}
	return l.of[n]
}

// all are all troubles, lowest number first.
func (l *troubles) all() iter.Seq[*trouble] {
	return func(yield func(*trouble) bool) {
		if l.count == 0 {
			return
		}
		for _, t := range l.of {
			if t != nil && !yield(t) {
				return
			}
		}
	}
}

// keep keeps the record of an element.
func (l *troubles) keep(t trouble) {
	l.forget(t.Number)
	if missing := t.Number + 1 - len(l.of); missing > 0 {
		l.of = append(l.of, make([]*trouble, missing)...)
	}
	l.of[t.Number] = &t
	l.count++
	if t.Size > 1 {
		l.halved++
	}
}

// forget drops the record of an element that is not delivered again.
func (l *troubles) forget(n int) {
	t := l.find(n)
	if t == nil {
		return
	}
	l.of[n] = nil
	l.count--
	if t.Size > 1 {
		l.halved--
	}
}

// IsZero has JSON leave out none.
func (l troubles) IsZero() bool { return l.count == 0 }

// MarshalJSON packs them: as a list the most that there may be have more bytes than Temporal takes.
func (l troubles) MarshalJSON() ([]byte, error) { return json.Marshal(pack(slices.Collect(l.all()))) }

// UnmarshalJSON is the inverse of MarshalJSON.
func (l *troubles) UnmarshalJSON(data []byte) error {
	if string(data) == "null" { // as usual in JSON, it changes nothing
		return nil
	}
	*l = troubles{}
	var packed []byte
	if err := json.Unmarshal(data, &packed); err != nil {
		return err
	}
	list, err := unpack(packed)
	if err != nil {
		return fmt.Errorf("the packed troubles of an array: %w", err)
	}
	for _, t := range list {
		l.keep(t)
	}
	return nil
}

// row is a trouble in numbers. Its time is in seconds, rounded up. An array has neither retries by hand nor a recovery
// in its tallies.
type row [9]int64

func (t *trouble) row() row {
	suspect := int64(0)
	if t.Suspect {
		suspect = 1
	}
	return row{int64(t.Number), int64(t.Attempts), int64(t.Tally.Failures), int64(t.Tally.Losses),
		int64(t.Tally.Returns), int64(t.Tally.NotReceived), int64(t.Size), suspect,
		t.At.Add(time.Second - 1).Unix()}
}

func (r *row) trouble() trouble {
	return trouble{Number: int(r[0]), Attempts: int(r[1]), Tally: task.Tally{Failures: int(r[2]), Losses: int(r[3]),
		Returns: int(r[4]), NotReceived: int(r[5])}, Size: int(r[6]), Suspect: r[7] == 1, At: time.Unix(r[8], 0).UTC()}
}

// pack writes their count, and then all first numbers, all second ones and so on, each as its difference to the one
// before, because neighbours are alike. The result is compressed.
func pack(list []*trouble) []byte {
	rows := make([]row, 1, len(list)+1) // the first is before them
	for _, t := range list {
		rows = append(rows, t.row())
	}
	plain := binary.AppendUvarint(nil, uint64(len(list)))
	for column := range len(row{}) {
		for i := range list {
			plain = binary.AppendVarint(plain, rows[i+1][column]-rows[i][column])
		}
	}
	var packed bytes.Buffer
	w, _ := flate.NewWriter(&packed, flate.DefaultCompression)
	_, _ = w.Write(plain) // a buffer takes all
	_ = w.Close()
	return packed.Bytes()
}

// unpack is the inverse of pack.
func unpack(packed []byte) ([]trouble, error) {
	plain := bufio.NewReader(flate.NewReader(bytes.NewReader(packed)))
	count, err := binary.ReadUvarint(plain)
	if err != nil || count > api.MaxElements {
		return nil, errors.Join(err, errors.New("they have no count"))
	}
	rows := make([]row, count+1)
	for column := range len(row{}) {
		for i := range count {
			difference, err := binary.ReadVarint(plain)
			if err != nil {
				return nil, err
			}
			rows[i+1][column] = rows[i][column] + difference
		}
	}
	list := make([]trouble, count)
	for i := range list {
		list[i] = rows[i+1].trouble()
	}
	return list, nil
}

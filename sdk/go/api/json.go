package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// MaxJSONDepth is how deep JSON from outside may be nested: payloads, results, checkpoints, state, settings, and the
// messages around them. encoding/json stops at 10,000, so accepted JSON stays readable in every message that wraps it.
const MaxJSONDepth = 256

// MaxJSONValueDepth is how deep a value from an agent may be nested: the message around it adds some levels.
const MaxJSONValueDepth = MaxJSONDepth - 8

// ErrJSONDepth is the error for JSON that is nested too deep.
var ErrJSONDepth = fmt.Errorf("JSON may be nested at most %d levels deep, with what it is sent in", MaxJSONDepth)

// maxJSONKey bounds the text of a JSONMark's key, in bytes.
const maxJSONKey = 1024

// JSONMark is a place in JSON text where something begins or ends.
type JSONMark struct {
	// What is '{', '[', '}', ']', '"' for the end of a key, or 'v' for the beginning of any other value.
	What byte
	// Key is the text of a key, cut at 1 KiB.
	Key string
	// Offset is the position of the byte from the beginning; for a key, that of its last quote.
	Offset int
	// Depth is how many objects and arrays are open around it.
	Depth int
	// Twice: the object has this key already. It is set only where keys are kept.
	Twice bool
}

// JSONOutline finds where objects, arrays, keys and values begin and end in JSON text that comes in pieces. It builds
// no values, has no limit of depth and keeps one byte for each level. It does not check the text; marks in text that is
// not JSON mean nothing.
type JSONOutline struct {
	// KeepKeys keeps the keys of objects that are open, for JSONMark.Twice.
	KeepKeys bool

	keys     []map[string]struct{} // of each level
	open     []byte                // '{' or '[' of each level
	offset   int
	text     bool // within a string
	escaped  bool // after a backslash
	key      bool // the string is a key
	keyNext  bool // the next string of the object is a key
	scalar   bool // within a number or a word
	keyBytes []byte
}

// Read reads the next piece and calls at for each mark in it, in order. It stops at the first error of at, and returns
// it.
func (o *JSONOutline) Read(piece []byte, at func(JSONMark) error) error {
	for _, c := range piece {
		if err := o.next(c, at); err != nil {
			return err
		}
		o.offset++
	}
	return nil
}

func (o *JSONOutline) next(c byte, at func(JSONMark) error) error {
	mark := JSONMark{What: c, Offset: o.offset, Depth: len(o.open)}
	if o.text {
		return o.nextOfText(c, mark, at)
	}
	switch c {
	case ' ', '\t', '\r', '\n', ':':
		o.scalar = false
		return nil
	case ',':
		o.scalar, o.keyNext = false, mark.Depth > 0 && o.open[mark.Depth-1] == '{'
		return nil
	case '{', '[':
		o.scalar, o.keyNext = false, c == '{'
		o.open = append(o.open, c)
		if o.KeepKeys {
			o.keys = append(o.keys, nil)
		}
		return at(mark)
	case '}', ']':
		o.scalar, o.keyNext = false, false
		if mark.Depth > 0 {
			mark.Depth--
			o.open = o.open[:mark.Depth]
			o.keys = o.keys[:min(len(o.keys), mark.Depth)]
		}
		return at(mark)
	case '"':
		o.text, o.key, o.keyNext, o.scalar, o.keyBytes = true, o.keyNext, false, false, o.keyBytes[:0]
		if o.key {
			return nil
		}
		mark.What = 'v'
		return at(mark)
	}
	if o.scalar {
		return nil
	}
	o.scalar, mark.What = true, 'v'
	return at(mark)
}

func (o *JSONOutline) nextOfText(c byte, mark JSONMark, at func(JSONMark) error) error {
	ends := c == '"' && !o.escaped
	o.escaped = c == '\\' && !o.escaped
	if !ends {
		if o.key && len(o.keyBytes) < maxJSONKey {
			o.keyBytes = append(o.keyBytes, c)
		}
		return nil
	}
	o.text = false
	if !o.key {
		return nil
	}
	mark.Key = string(o.keyBytes)
	var plain string
	if strings.Contains(mark.Key, `\`) && json.Unmarshal([]byte(`"`+mark.Key+`"`), &plain) == nil {
		mark.Key = plain // escapes
	}
	mark.Twice = o.isTwice(mark)
	return at(mark)
}

// isTwice notes a key, unless it was cut.
func (o *JSONOutline) isTwice(mark JSONMark) bool {
	if !o.KeepKeys || mark.Depth == 0 || len(o.keyBytes) >= maxJSONKey {
		return false
	}
	keys := o.keys[mark.Depth-1]
	if keys == nil {
		keys = map[string]struct{}{}
		o.keys[mark.Depth-1] = keys
	}
	_, twice := keys[mark.Key]
	keys[mark.Key] = struct{}{}
	return twice
}

// CheckJSONDepth returns ErrJSONDepth for text that is nested deeper than most levels.
func CheckJSONDepth(text []byte, most int) error {
	if len(text) <= most {
		return nil // too short to be so deep
	}
	var outline JSONOutline
	return outline.Read(text, func(m JSONMark) error {
		if m.Depth >= most && (m.What == '{' || m.What == '[') {
			return ErrJSONDepth
		}
		return nil
	})
}

// ErrJSONKeyTwice is the error for JSON in which an object has a key twice: readers would take one of them.
var ErrJSONKeyTwice = errors.New("is there twice: keep one of them")

// CheckJSONKeys returns a FieldError with ErrJSONKeyTwice for text in which an object has a key twice.
func CheckJSONKeys(text []byte) error {
	outline := JSONOutline{KeepKeys: true}
	var path []string // the newest key, or the number of the newest element, of each level
	var elements []int
	element := func(depth int) { // a value begins
		if depth > 0 && elements[depth-1] >= 0 {
			path[depth-1] = "[" + strconv.Itoa(elements[depth-1]) + "]"
			elements[depth-1]++
		}
	}
	return outline.Read(text, func(m JSONMark) error {
		switch m.What {
		case 'v':
			element(m.Depth)
		case '{', '[':
			element(m.Depth)
			path, elements = append(path, ""), append(elements, 0)
			if m.What == '{' {
				elements[m.Depth] = -1
			}
		case '}', ']':
			path, elements = path[:min(len(path), m.Depth)], elements[:min(len(elements), m.Depth)]
		case '"':
			if path[m.Depth-1] = "." + m.Key; m.Twice {
				return &FieldError{strings.TrimPrefix(strings.Join(path, ""), "."), ErrJSONKeyTwice}
			}
		}
		return nil
	})
}

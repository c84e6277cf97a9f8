package protocol

import (
	"encoding/json"
	"errors"

	"mainstay.dev/sdk/api"
)

// ReadPolled is a Polled as an agent reads it: each assignment and command by itself, so that one that cannot be read
// does not cost the others, nor the lease.
type ReadPolled struct {
	Polled
	// Unreadable are assignments that cannot be read, as the agent hands them back under Poll.Returned.
	Unreadable []RunningAttempt
	// Ignored counts items that cannot be read and cannot be handed back: commands, and assignments whose task id
	// cannot be read either.
	Ignored int
}

// Read reads the text of a hub's answer. It returns an error only where the answer as a whole is not one.
func (p *ReadPolled) Read(text []byte) error {
	*p = ReadPolled{}
	around, elements := splitLists(text, "assignments", "commands")
	if err := json.Unmarshal(around, &p.Polled); err != nil {
		return err
	}
	for _, raw := range elements["assignments"] {
		var a Assignment
		err := readElement(raw, &a)
		if err == nil {
			p.Assignments = append(p.Assignments, a)
			continue
		}
		var returned RunningAttempt
		if json.Unmarshal(flat(raw), &returned) != nil || returned.TaskID == "" {
			p.Ignored++
			continue
		}
		p.Unreadable = append(p.Unreadable, RunningAttempt{TaskID: returned.TaskID, Attempt: returned.Attempt,
			Unreadable: err.Error()})
	}
	for _, raw := range elements["commands"] {
		var c Command
		if readElement(raw, &c) != nil {
			p.Ignored++
			continue
		}
		p.Commands = append(p.Commands, c)
	}
	return nil
}

var errElement = errors.New("it does not have the form that this agent knows")

// readElement reads one element of a list. Its error does not repeat what stood there.
func readElement(raw []byte, into any) error {
	if err := api.CheckJSONDepth(raw, api.MaxJSONDepth); err != nil {
		return err
	}
	if json.Unmarshal(raw, into) != nil {
		return errElement
	}
	return nil
}

// splitLists cuts the objects out of some lists of an object. around is the text without them.
func splitLists(text []byte, names ...string) (around []byte, elements map[string][][]byte) {
	elements = map[string][][]byte{}
	wanted := map[string]bool{}
	for _, name := range names {
		wanted[name] = true
	}
	var outline api.JSONOutline
	list, begin, kept := "", 0, 0
	_ = outline.Read(text, func(m api.JSONMark) error { // at returns no error
		switch {
		case m.Depth == 1 && m.What == '"':
			list = ""
			if wanted[m.Key] {
				list = m.Key
			}
		case list == "":
		case m.Depth == 1 && m.What == '[':
			around = append(around, text[kept:m.Offset+1]...)
			kept = m.Offset + 1
		case m.Depth == 1 && m.What == ']':
			kept = m.Offset
		case m.Depth == 2 && m.What == '{':
			begin = m.Offset
		case m.Depth == 2 && m.What == '}':
			elements[list] = append(elements[list], text[begin:m.Offset+1])
		}
		return nil
	})
	return append(around, text[kept:]...), elements
}

// flat is the text of an object without the objects and arrays in it.
func flat(text []byte) []byte {
	var out []byte
	var outline api.JSONOutline
	kept := 0
	_ = outline.Read(text, func(m api.JSONMark) error { // at returns no error
		switch {
		case m.Depth == 1 && (m.What == '{' || m.What == '['):
			out = append(append(out, text[kept:m.Offset]...), "null"...)
		case m.Depth == 1 && (m.What == '}' || m.What == ']'):
			kept = m.Offset + 1
		}
		return nil
	})
	return append(out, text[kept:]...)
}

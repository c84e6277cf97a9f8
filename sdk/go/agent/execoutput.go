package agent

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"mainstay.dev/sdk/api"
)

// maxExecOutput bounds stdout and stderr each, in bytes.
const maxExecOutput = 64 << 10

// resultFrame is more than what an ExecResult has as JSON beside its outputs.
const resultFrame = 64

// resultLimit is how many bytes of JSON the task's result may have.
func (t *Task) resultLimit() int {
	if t.attempt == nil {
		return api.MaxPayloadBytes
	}
	return min(t.attempt.resultLimit, t.attempt.mostOutput())
}

// fitResult is the result of a command that succeeded, within limit bytes of JSON. An output that needs less than half
// of the room leaves the rest to the other.
func fitResult(stdout, stderr *headTail, limit int) ExecResult {
	room := max(0, limit-resultFrame)
	out, errs := stdout.size(), stderr.size()
	switch half := room / 2; {
	case out+errs <= room:
	case errs <= half:
		out = room - errs
	case out <= half:
		errs = room - out
	default:
		out, errs = half, half
	}
	return ExecResult{Stdout: stdout.within(out), Stderr: stderr.within(errs)}
}

// headTail keeps the beginning and the end of the text written to it.
type headTail struct {
	limit int
	head  []byte
	ring  []byte // the end, once the head is full
	next  int    // where in the ring the next byte goes, once it is full
	total int
}

// cutMark stands where bytes were left out; cutMarkSize is room for it, also as JSON.
const (
	cutMark     = "\n[… %d bytes cut …]\n"
	cutMarkSize = 64
)

func (b *headTail) Write(p []byte) (int, error) {
	n := len(p)
	b.total += n
	half := (b.limit - cutMarkSize) / 2
	if room := half - len(b.head); room > 0 {
		taken := min(room, len(p))
		b.head = append(b.head, p[:taken]...)
		p = p[taken:]
	}
	p = p[max(0, len(p)-half):]
	if room := half - len(b.ring); room > 0 {
		taken := min(room, len(p))
		b.ring = append(b.ring, p[:taken]...)
		p = p[taken:]
	}
	for len(p) > 0 {
		copied := copy(b.ring[b.next:], p)
		b.next = (b.next + copied) % len(b.ring)
		p = p[copied:]
	}
	return n, nil
}

// end is what the ring holds, in order.
func (b *headTail) end() []byte {
	return append(append([]byte(nil), b.ring[b.next:]...), b.ring[:b.next]...)
}

// kept is the beginning and the end. They are one text, and end is empty, when nothing was left out.
func (b *headTail) kept() (begin, end string) {
	if b.total > len(b.head)+len(b.ring) {
		return string(b.head), string(b.end())
	}
	return string(b.head) + string(b.end()), ""
}

// size is how many bytes the kept text takes as JSON, with the mark.
func (b *headTail) size() int {
	begin, end := b.kept()
	n := jsonSize(begin) + jsonSize(end)
	if end != "" {
		n += cutMarkSize
	}
	return n
}

// within is the kept text in at most room bytes of JSON, with a mark where something was left out.
func (b *headTail) within(room int) string {
	if b.size() <= room {
		begin, end := b.kept()
		if end == "" {
			return valid(begin)
		}
		return b.marked(begin, end)
	}
	begin, end := b.kept()
	if end == "" {
		end = begin
	}
	half := max(0, room-cutMarkSize) / 2
	return b.marked(firstWithin(begin, half), lastWithin(end, half))
}

// marked joins the beginning and the end by the mark.
func (b *headTail) marked(begin, end string) string {
	for i := len(begin) - 1; i >= 0 && i >= len(begin)-utf8.UTFMax; i-- { // a character that was cut
		if utf8.RuneStart(begin[i]) {
			if !utf8.FullRuneInString(begin[i:]) {
				begin = begin[:i]
			}
			break
		}
	}
	for n := 0; n < utf8.UTFMax && end != "" && !utf8.RuneStart(end[0]); n++ {
		end = end[1:]
	}
	return valid(begin) + fmt.Sprintf(cutMark, b.total-len(begin)-len(end)) + valid(end)
}

// tail is the trimmed end, of at most limit bytes.
func (b *headTail) tail(limit int) string {
	all := append(append([]byte(nil), b.head...), b.end()...)
	return strings.TrimSpace(valid(string(all[max(0, len(all)-limit):])))
}

// valid replaces bytes that are not UTF-8.
func valid(s string) string { return strings.ToValidUTF8(s, "?") }

// jsonSize is how many bytes a text takes within JSON at most, as encoding/json writes it.
func jsonSize(s string) int {
	n := 0
	for i := 0; i < len(s); {
		r, width := utf8.DecodeRuneInString(s[i:])
		n += jsonWidth(r, width)
		i += width
	}
	return n
}

// jsonWidth is how many bytes a character of this width takes within JSON.
func jsonWidth(r rune, width int) int {
	switch {
	case r == '"', r == '\\', r == '\n', r == '\r', r == '\t':
		return 2
	case r < ' ', r == '<', r == '>', r == '&', r == '\u2028', r == '\u2029':
		return len(`\u0000`)
	}
	return width // width 1: a byte that is not UTF-8, which becomes a question mark
}

// firstWithin is the beginning of a text that takes at most room bytes within JSON.
func firstWithin(s string, room int) string {
	for i := 0; i < len(s); {
		r, width := utf8.DecodeRuneInString(s[i:])
		if room -= jsonWidth(r, width); room < 0 {
			return s[:i]
		}
		i += width
	}
	return s
}

// lastWithin is the end of a text that takes at most room bytes within JSON.
func lastWithin(s string, room int) string {
	for i := len(s); i > 0; {
		r, width := utf8.DecodeLastRuneInString(s[:i])
		if room -= jsonWidth(r, width); room < 0 {
			return s[i:]
		}
		i -= width
	}
	return s
}

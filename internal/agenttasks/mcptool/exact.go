package mcptool

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"net/http"
)

// exactName wraps the structured content of a result, as text: the SDK would make doubles of its numbers.
const exactName = "dev.mainstay/exact"

// exact is a message with the structured content of its result as text; any other is as it was.
func exact(message []byte) []byte {
	const name = "structuredContent"
	var around, result map[string]json.RawMessage
	if !bytes.Contains(message, []byte(name)) || json.Unmarshal(message, &around) != nil ||
		json.Unmarshal(around["result"], &result) != nil || result[name] == nil || string(result[name]) == "null" {
		return message
	}
	content, err := json.Marshal(map[string]string{exactName: string(result[name])})
	if err != nil {
		return message
	}
	result[name] = content
	if around["result"], err = json.Marshal(result); err != nil {
		return message
	}
	changed, err := json.Marshal(around)
	if err != nil {
		return message
	}
	return changed
}

// structured is the structured content of a result as the server wrote it.
func structured(content any) any {
	if wrapped, ok := content.(map[string]any); ok && len(wrapped) == 1 {
		if text, ok := wrapped[exactName].(string); ok {
			return json.RawMessage(text)
		}
	}
	return content
}

// exactBody is the body of an answer with its messages made exact: one message, or those of a stream of events.
func exactBody(response *http.Response, body io.ReadCloser) io.ReadCloser {
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	switch kind {
	case "application/json":
		response.ContentLength = -1
		return &exactReader{ReadCloser: body, next: func() ([]byte, error) {
			message, err := io.ReadAll(body)
			if err != nil {
				return nil, err
			}
			return exact(message), io.EOF
		}}
	case "text/event-stream":
		lines := bufio.NewReader(body)
		return &exactReader{ReadCloser: body, next: func() ([]byte, error) {
			line, err := lines.ReadBytes('\n')
			if data, isData := bytes.CutPrefix(line, []byte("data:")); isData {
				end := bytes.TrimLeft(data, " ")
				text := bytes.TrimRight(end, "\r\n")
				line = append(append([]byte("data: "), exact(text)...), end[len(text):]...)
			}
			return line, err
		}}
	}
	return body
}

// exactReader reads pieces one after another.
type exactReader struct {
	io.ReadCloser
	next func() ([]byte, error)
	rest []byte
	err  error
}

// Read implements io.Reader.
func (r *exactReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 && r.err == nil {
		r.rest, r.err = r.next()
	}
	if len(r.rest) == 0 {
		return 0, r.err
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// Package static serves texts that are the same for everybody. They are made and compressed once: an answer that nobody
// reads takes no memory of its own.
package static

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"time"
)

// Text is one text as it is sent.
type Text struct {
	// Digest names the text's bytes.
	Digest     string
	kind       string
	plain, zip []byte
}

// New makes a text of a media type.
func New(kind string, data []byte) (*Text, error) {
	var zipped bytes.Buffer
	w, err := gzip.NewWriterLevel(&zipped, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(data)
	return &Text{Digest: hex.EncodeToString(sum[:8]), kind: kind, plain: data, zip: zipped.Bytes()}, nil
}

// ServeHTTP sends the text, compressed for clients that take gzip, and nothing to those that have it.
func (t *Text) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", t.kind)
	h.Set("Vary", "Accept-Encoding")
	body, etag := t.plain, `"`+t.Digest+`"`
	if acceptsGzip(r.Header.Get("Accept-Encoding")) {
		body, etag = t.zip, `"`+t.Digest+`-gz"`
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("ETag", etag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
}

func acceptsGzip(header string) bool {
	for part := range strings.SplitSeq(header, ",") {
		name, quality, _ := strings.Cut(strings.TrimSpace(part), ";")
		if strings.TrimSpace(name) == "gzip" {
			q := strings.TrimSpace(quality)
			return q != "q=0" && q != "q=0.0"
		}
	}
	return false
}

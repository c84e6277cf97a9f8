package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
)

// maxPage is how many items one request asks for, at most.
const maxPage = 200

// List is a list of the API, which is read page by page. Nothing is asked for before All or Take.
type List[T any] struct {
	client *Client
	path   string
	key    string // the field of the answer that has the items
	query  url.Values
	more   bool
	// missing are the clusters that did not answer, by the pages that were read.
	missing []string
}

func list[T any](c *Client, path, key string, query url.Values) *List[T] {
	return &List[T]{client: c, path: path, key: key, query: query, more: true}
}

// More reports whether there are items after those that were read. Of a list that was not read it is true.
func (l *List[T]) More() bool { return l.more }

// Missing are the clusters that did not answer, by the pages that Take has read. Their items are not in the list.
func (l *List[T]) Missing() []string { return l.missing }

// All are the items from where Take left the list, and leaves it there. An error ends them.
func (l *List[T]) All(ctx context.Context) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		own := *l
		own.query = maps.Clone(l.query)
		for own.more {
			_, items, err := own.page(ctx)
			if err != nil {
				var zero T
				yield(zero, err)
				return
			}
			for _, item := range items {
				if !yield(item, nil) {
					return
				}
			}
		}
	}
}

// Take reads the next n items, 0 being all. There are fewer only at the end of the list.
func (l *List[T]) Take(ctx context.Context, n int) ([]T, error) {
	var raw [][]byte
	items := []T{}
	for l.more && (n == 0 || len(items) < n) {
		if n > 0 {
			l.query.Set("page_size", strconv.Itoa(min(maxPage, n-len(items))))
		}
		pageRaw, page, err := l.page(ctx)
		if err != nil {
			return nil, err
		}
		for _, item := range pageRaw {
			raw = append(raw, item)
		}
		items = append(items, page...)
	}
	if l.client.raw != nil { // json.Marshal would escape what came
		missing := []byte(nil)
		if len(l.missing) > 0 {
			names, _ := json.Marshal(l.missing) // cannot fail
			missing = slices.Concat([]byte(`,"missing_clusters":`), names)
		}
		*l.client.raw = slices.Concat([]byte(`{"`+l.key+`":[`), bytes.Join(raw, []byte(",")), []byte("]"), missing,
			[]byte("}"))
	}
	return items, nil
}

// page reads one page.
func (l *List[T]) page(ctx context.Context) (raw []json.RawMessage, items []T, err error) {
	data, err := l.client.send(ctx, &request{method: http.MethodGet, path: l.path, query: l.query})
	if err != nil {
		return nil, nil, err
	}
	var page map[string]json.RawMessage
	var next string
	if err := json.Unmarshal(data, &page); err != nil {
		return nil, nil, l.client.strange(err)
	}
	if l.client.raw != nil {
		err = decode(page[l.key], &raw)
	}
	var missing []string
	if err = errors.Join(err, decode(page[l.key], &items), decode(page["next_page_token"], &next),
		decode(page["missing_clusters"], &missing)); err != nil {
		return nil, nil, l.client.strange(err)
	}
	l.missing = append(l.missing, missing...)
	slices.Sort(l.missing)
	l.missing = slices.Compact(l.missing)
	l.more = next != ""
	l.query.Set("page_token", next)
	return raw, items, nil
}

func decode(raw json.RawMessage, into any) error {
	if raw == nil {
		return nil
	}
	return json.Unmarshal(raw, into)
}

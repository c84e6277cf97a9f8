package gateway

import (
	"context"
	"strings"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/protocol"
)

// pageOf reads one page of what a visibility query finds. A page token belongs to its query.
func pageOf[T any](
	ctx context.Context, g *Gateway, doing string, read func(context.Context, string, int, []byte) ([]T, []byte, error),
	query string, size int, pageToken string,
) (page []T, next string, err error) {
	token, err := openToken(query, pageToken)
	if err != nil {
		return nil, "", err
	}
	page, after, err := read(ctx, query, size, token)
	return page, sealToken(query, after), g.answer(err, doing, protocol.CodeNotFound)
}

// allOf is the query of those that meet all terms; empty terms are left out.
func allOf(terms ...string) string {
	kept := terms[:0:0]
	for _, term := range terms {
		if term != "" {
			kept = append(kept, term)
		}
	}
	return strings.Join(kept, " AND ")
}

// filter is the term of an optional filter.
func filter(attribute, value string) string {
	if value == "" {
		return ""
	}
	return contract.Equals(attribute, value)
}

package rest

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"sort"
	"strings"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/protocol"
)

// PageInput is the paging of lists that are at hand. It is exported, as those below are, because huma reads no
// unexported embedded field.
type PageInput struct {
	PageSize  int    `query:"page_size" minimum:"1" maximum:"1000" default:"1000"`
	PageToken string `query:"page_token" maxLength:"4096" doc:"next_page_token of the page before."`
}

// RecordPageInput is the paging of lists that visibility brings; each entry may cost a look at its workflow.
type RecordPageInput struct {
	PageSize  int    `query:"page_size" minimum:"1" maximum:"200" default:"50"`
	PageToken string `query:"page_token" maxLength:"4096" doc:"next_page_token of the page before."`
}

// QueuePageInput is the paging of queue views, whose every lane costs a call to Temporal.
type QueuePageInput struct {
	PageSize  int    `query:"page_size" minimum:"1" maximum:"1000" default:"200"`
	PageToken string `query:"page_token" maxLength:"4096" doc:"next_page_token of the page before."`
}

// PageTokens makes and reads the tokens of pages, with the installation's key. A token has a sum of itself and of its
// list: a token of another list would bring the wrong page, and one that a client has made is for Temporal's history
// service a sign of lost data. Without a key the sum is only a check against mistakes.
type PageTokens []byte

// tokenSum is the length of a token's sum, in bytes.
const tokenSum = 8

// Seal makes the token that a client sees; empty at the last page.
func (p PageTokens) Seal(list string, token []byte) string {
	if len(token) == 0 {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(append(p.sumOf(list, token), token...))
}

// Open reads what Seal has made for the same list.
func (p PageTokens) Open(list, text string) ([]byte, error) {
	if text == "" {
		return nil, nil
	}
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil && len(sealed) > tokenSum && subtle.ConstantTimeCompare(sealed[:tokenSum],
		p.sumOf(list, sealed[tokenSum:])) == 1 {
		return sealed[tokenSum:], nil
	}
	return nil, httpapi.InvalidField("query.page_token", "is not the next_page_token of this list with these filters")
}

func (p PageTokens) sumOf(list string, token []byte) []byte {
	h := hmac.New(sha256.New, p)
	h.Write([]byte("page token\x00")) // the key is not only for these
	h.Write([]byte(list))
	h.Write([]byte{0})
	h.Write(token)
	return h.Sum(nil)[:tokenSum]
}

// ByKey names the lists that the gateway itself sorts. Their tokens hold the last key of the page, and need no key.
const ByKey = "by key"

// PageAtHand sorts items by key and returns the page of a token.
func PageAtHand[T any](items []T, in PageInput, key func(*T) string) (Page[T], error) {
	last, err := PageTokens(nil).Open(ByKey, in.PageToken)
	if err != nil {
		return Page[T]{}, err
	}
	after := string(last)
	sort.Slice(items, func(i, j int) bool { return key(&items[i]) < key(&items[j]) })
	start := sort.Search(len(items), func(i int) bool { return key(&items[i]) > after })
	items = items[start:]
	if len(items) <= in.PageSize {
		return Page[T]{Items: items}, nil
	}
	return Page[T]{Items: items[:in.PageSize],
		Next: PageTokens(nil).Seal(ByKey, []byte(key(&items[in.PageSize-1])))}, nil
}

// recordTakes is what one record counts for, in bytes. Reading it takes about 8 KiB. It counts for more, so that one
// client reads only a few large pages at a time: a store answers one after the other, and others wait.
const recordTakes = 16 << 10

// ReservePage reserves memory for size records before they are read; see httpapi.Reserve.
func ReservePage(ctx context.Context, size int) error {
	return httpapi.Reserve(ctx, int64(size)*recordTakes)
}

// Read reads one page of what a visibility query finds, and the token of the next.
type Read[T any] func(ctx context.Context, query string, size int, token []byte) ([]T, []byte, error)

// InTurn reads when it is the client's turn; see httpapi.Turn.
func InTurn[T any](read Read[T]) Read[T] {
	return func(ctx context.Context, query string, size int, token []byte) ([]T, []byte, error) {
		done, err := httpapi.Turn(ctx)
		if err != nil {
			return nil, nil, err
		}
		defer done()
		ctx, cancel := context.WithTimeout(ctx, CallTimeout)
		defer cancel()
		return read(ctx, query, size, token)
	}
}

// PageOf reads one page of what a visibility query finds. A page token belongs to its query.
func PageOf[T any](
	ctx context.Context, c *Core, doing string, read Read[T], query string, p RecordPageInput,
) (Page[T], error) {
	token, err := c.PageTokens.Open(query, p.PageToken)
	if err != nil {
		return Page[T]{}, err
	}
	if err := ReservePage(ctx, p.PageSize); err != nil {
		return Page[T]{}, err
	}
	items, after, err := InTurn(read)(ctx, query, p.PageSize, token)
	return Page[T]{Items: items, Next: c.PageTokens.Seal(query, after)}, c.Answer(err, doing, protocol.CodeNotFound)
}

// RecordOf returns the newest record of a workflow. ok is false for an id that names none; unknown is its code.
func RecordOf[T any](
	ctx context.Context, c *Core, records store.Records[T], workflowID string, ok bool, unknown string,
) (record T, err error) {
	if !ok {
		return record, Unknown(unknown)
	}
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	record, err = records.Get(ctx, workflowID)
	return record, c.Answer(err, "describe the workflow "+workflowID, unknown)
}

// OfType is the query of the workflows of a type that meet all terms; empty terms are left out.
func OfType(workflow string, terms ...string) string {
	return AllOf(append([]string{contract.Equals("WorkflowType", workflow)}, terms...)...)
}

// AllOf is the query of those that meet all terms; empty terms are left out.
func AllOf(terms ...string) string {
	kept := terms[:0:0]
	for _, term := range terms {
		if term != "" {
			kept = append(kept, term)
		}
	}
	return strings.Join(kept, " AND ")
}

// Filter is the term of an optional filter.
func Filter[S ~string](attribute interface{ GetName() string }, value S) string {
	if value == "" {
		return ""
	}
	return contract.Equals(attribute.GetName(), string(value))
}

package httpapi

import (
	"maps"
	"net/url"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"mainstay.dev/mainstay/protocol"
)

// singleParameters are the query parameters of an operation that have one value. Of a second one, huma would say
// nothing.
func singleParameters(op *huma.Operation) map[string]bool {
	single := map[string]bool{}
	for _, p := range op.Parameters {
		if p.In == "query" && p.Schema != nil && p.Schema.Type != huma.TypeArray {
			single[p.Name] = true
		}
	}
	return single
}

// repeated is the problem of parameters that were given more often than they may be; nil: there are none.
func repeated(single map[string]bool, query url.Values) error {
	var fields []protocol.ProblemField
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if single[name] && len(query[name]) > 1 {
			fields = append(fields, protocol.ProblemField{Location: "query." + name,
				Message: "is given more than once, and takes one value"})
		}
	}
	if len(fields) == 0 {
		return nil
	}
	return Problem(protocol.CodeInvalidRequest, invalidDetail, fields...)
}

package gateway

import (
	"errors"
	"strings"

	"mainstay.dev/mainstay/api"
)

// takeKey takes the Idempotency-Key header, which means what idempotency_key means in the body. The header's own form has
// quotes around the key; they are no part of it.
func takeKey(r *api.TaskRequest, header string) error {
	key := strings.TrimSpace(header)
	if len(key) >= 2 && strings.HasPrefix(key, `"`) && strings.HasSuffix(key, `"`) {
		key = key[1 : len(key)-1]
	}
	switch {
	case key == "" && header != "":
		return invalid("header.Idempotency-Key", errors.New("is empty: leave it out, or give a key"))
	case len(key) > 256:
		return invalid("header.Idempotency-Key", errors.New("must have at most 256 characters"))
	case key != "" && r.IdempotencyKey != "" && key != r.IdempotencyKey:
		return invalid("header.Idempotency-Key", errors.New("differs from idempotency_key in the body: give one of them"))
	case key != "":
		r.IdempotencyKey = key
	}
	return nil
}

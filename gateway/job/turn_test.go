package job

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/access"
)

// A tenant that has many definitions checked at once waits for itself, and no other waits for it.
func TestOneDefinitionOfATenantIsCheckedAtATime(t *testing.T) {
	t.Parallel()
	h := &Handlers{}
	acme := access.With(t.Context(), access.Identity{Tenant: "acme"})
	done, err := h.turn(acme)
	require.NoError(t, err)
	gone, leave := context.WithCancel(acme)
	leave()
	_, err = h.turn(gone)
	require.ErrorIs(t, err, context.Canceled)
	another, err := h.turn(access.With(t.Context(), access.Identity{Tenant: "beta"}))
	require.NoError(t, err)
	another()
	done()
	done, err = h.turn(acme)
	require.NoError(t, err)
	done()
}

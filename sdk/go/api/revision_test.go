package api_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/api"
)

func TestRevision(t *testing.T) {
	t.Parallel()
	base := api.ClusterConfig{Name: "a", TenantWeights: map[string]float64{"x": 1, "y": 2}}
	require.Len(t, base.Revision(), 16)
	for name, same := range map[string]api.ClusterConfig{
		"written out":   base.WithDefaults(),
		"another order": {Name: "a", TenantWeights: map[string]float64{"y": 2, "x": 1}},
		"a default": {Name: "a", TenantWeights: base.TenantWeights,
			RoleLease: api.Duration(api.DefaultRoleLease)},
	} {
		require.Equal(t, base.Revision(), same.Revision(), name)
	}
	for name, other := range map[string]api.ClusterConfig{
		"name":    {Name: "b", TenantWeights: base.TenantWeights},
		"lease":   {Name: "a", TenantWeights: base.TenantWeights, RoleLease: api.Duration(time.Second)},
		"weights": {Name: "a", TenantWeights: map[string]float64{"x": 1}},
	} {
		require.NotEqual(t, base.Revision(), other.Revision(), name)
	}
	require.True(t, base.RevisionIs(nil))
	require.True(t, base.RevisionIs([]string{"other", base.Revision()}))
	require.False(t, base.RevisionIs([]string{"other"}))
}

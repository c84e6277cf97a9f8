package gateway

import (
	"context"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"mainstay.dev/mainstay/access"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/httpapi"
)

// ClusterPatch holds the settings of a cluster that change, as JSON has them. Its schema is that of ClusterChanges.
type ClusterPatch map[string]any

// Schema implements huma.SchemaProvider.
func (ClusterPatch) Schema(schemas huma.Registry) *huma.Schema {
	return schemas.Schema(reflect.TypeFor[ClusterChanges](), true, "ClusterChanges")
}

// ClusterChanges describes a patch: the settings that can change after creation.
type ClusterChanges fleet.ClusterConfig

// TransformSchema implements huma.SchemaTransformer.
func (ClusterChanges) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	s.Properties["tenant_weights"].Description = "Weights to set, by tenant, 0.1 to 100; 0 takes a tenant's weight away. Tenants that are not named keep theirs."
	return without(s, "name", "shards")
}

func set[T any](field *T, value *T) {
	if value != nil {
		*field = *value
	}
}

func (g *Gateway) registerClusterPatch(routes huma.API) {
	operation := clusterOperation("update-cluster", http.MethodPatch, "/{id}", "Change some settings of a cluster", http.StatusOK)
	operation.Description = "What is left out stays as it is, unlike with PUT. A zero takes the default."
	httpapi.Register(routes, access.Administer, operation, func(ctx context.Context, in *struct {
		ID string `path:"id" doc:"The cluster's name."`
		IfMatch
		Body ClusterPatch
	}) (*clusterOutput, error) {
		expected, err := in.revisions()
		if err != nil {
			return nil, err
		}
		cluster, err := g.configure(ctx, in.ID, expected, func(c fleet.ClusterConfig) (fleet.ClusterConfig, error) {
			return c.Changed(in.Body)
		})
		if err != nil {
			return nil, err
		}
		return tagged(cluster), nil
	})
}

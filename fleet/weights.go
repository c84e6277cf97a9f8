package fleet

import "fmt"

// Bounds of tenant weights.
const (
	MaxTenantWeights = 100
	MinTenantWeight  = 0.1
	MaxTenantWeight  = 100
)

// validateWeights checks the weights with which tenants share a cluster's lanes.
func validateWeights(weights map[string]float64) error {
	if len(weights) > MaxTenantWeights {
		return fmt.Errorf("tenant_weights may name at most %d tenants", MaxTenantWeights)
	}
	for tenant, weight := range weights {
		if err := ValidateID("tenant_weights: a tenant", tenant); err != nil {
			return err
		}
		if !(weight >= MinTenantWeight && weight <= MaxTenantWeight) { // also refuses NaN
			return fmt.Errorf("tenant_weights must lie between %g and %d; a tenant that is not named has 1", MinTenantWeight, MaxTenantWeight)
		}
	}
	return nil
}

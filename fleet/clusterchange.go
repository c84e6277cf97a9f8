package fleet

import (
	"encoding/json"
	"fmt"
	"maps"
)

// Changed returns the configuration with changes, which are JSON in the form of the configuration. What they leave out,
// or set to null, stays. A tenant weight of 0 removes the tenant's weight. Resources and the environment of started
// agents are replaced as a whole. The configuration itself and the changes are not modified.
func (c ClusterConfig) Changed(changes map[string]any) (ClusterConfig, error) {
	settings := map[string]any{}
	if err := transcode(c, &settings); err != nil {
		return c, err
	}
	merge(settings, changes)
	var changed ClusterConfig
	if err := transcode(settings, &changed); err != nil {
		return c, err
	}
	maps.DeleteFunc(changed.TenantWeights, func(_ string, weight float64) bool { return weight == 0 })
	return changed, nil
}

func transcode(from, to any) error {
	text, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(text, to)
	}
	if err != nil {
		return fmt.Errorf("read a cluster's settings: %w", err)
	}
	return nil
}

// merge changes the settings of an object; of objects in it, too.
func merge(settings, changes map[string]any) {
	for name, value := range changes {
		present, isObject := settings[name].(map[string]any)
		inner, changesObject := value.(map[string]any)
		switch {
		case value == nil:
		case isObject && changesObject && name != "environment" && name != "resources":
			merge(present, inner)
		default:
			settings[name] = value
		}
	}
}

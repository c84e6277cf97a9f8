package array

import (
	"mainstay.dev/sdk/api"
)

// DefinitionOf is the array that a request asks for.
func DefinitionOf(r *api.ArrayRequest) Definition {
	return Definition{Spec: r.TaskSpec, Items: r.Items, Count: r.Count, Parallel: r.MaxParallel,
		Tolerate: r.Tolerate}
}

package api

import "mainstay.dev/mainstay/array"

// DefinitionOf is the array that a request asks for.
func DefinitionOf(r *ArrayRequest) array.Definition {
	return array.Definition{Spec: r.TaskSpec, Items: r.Items, Count: r.Count, Parallel: r.MaxParallel,
		Tolerate: r.Tolerate}
}

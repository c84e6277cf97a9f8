// Package parallel does many small things at the same time, but not too many.
package parallel

import "golang.org/x/sync/errgroup"

// Each calls do for 0…n-1, at most the given number at a time, and returns when all have ended.
func Each(n, atOnce int, do func(i int)) {
	var all errgroup.Group
	all.SetLimit(atOnce)
	for i := range n {
		all.Go(func() error { do(i); return nil })
	}
	_ = all.Wait()
}

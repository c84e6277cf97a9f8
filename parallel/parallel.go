// Package parallel does many small things at the same time, but not too many.
package parallel

import "sync"

// Each calls do for 0…n-1, at most the given number at a time, and returns when all have ended.
func Each(n, atOnce int, do func(i int)) {
	var workers sync.WaitGroup
	next := make(chan int)
	for range min(n, atOnce) {
		workers.Go(func() {
			for i := range next {
				do(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	workers.Wait()
}

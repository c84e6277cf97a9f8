package bench

import (
	"context"
	"os"
	"runtime"
	"time"
)

const (
	heapMetric        = "go_memstats_heap_alloc_bytes"
	collectionsMetric = "go_gc_duration_seconds_count"
	// collectLimit bounds waiting for a collection; the runtime forces one after two idle minutes.
	collectLimit = 130 * time.Second
	// sweepTime is how long the heap's size is watched after a collection, while dead objects are swept.
	sweepTime = 300 * time.Millisecond
)

// ownMemory is this process's resident memory and Go heap, in bytes, after a collection.
func ownMemory() (resident, heap int64, err error) {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	resident, err = Memory(os.Getpid())
	return resident, int64(stats.HeapAlloc), err //nolint:gosec // no heap has 2⁶³ bytes
}

// processMemory is a control plane process's resident memory and Go heap, in bytes. It asks for metrics, which makes
// garbage, until the process has collected twice: what died before is gone then.
func processMemory(ctx context.Context, url string, pid int) (resident, heap int64, err error) {
	if resident, err = Memory(pid); err != nil {
		return 0, 0, err
	}
	first, err := metric(ctx, url, collectionsMetric, "")
	if err != nil {
		return 0, 0, err
	}
	if err := eventually(ctx, "two garbage collections", collectLimit, time.Millisecond,
		func(ctx context.Context) (bool, error) {
			collections, err := metric(ctx, url, collectionsMetric, "")
			return collections >= first+2, err
		}); err != nil {
		return 0, 0, err
	}
	for until := time.Now().Add(sweepTime); time.Now().Before(until); {
		bytes, err := metric(ctx, url, heapMetric, "")
		if err != nil {
			return 0, 0, err
		}
		if heap == 0 || int64(bytes) < heap {
			heap = int64(bytes)
		}
		if err := pause(ctx, sweepTime/10); err != nil {
			return 0, 0, err
		}
	}
	return resident, heap, nil
}

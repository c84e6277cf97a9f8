package fleet

import "time"

// The rolling window of an agent's health.
const (
	// HealthWindowLength is how far back a score looks.
	HealthWindowLength = 5 * time.Minute
	healthBuckets      = 10
	healthBucket       = HealthWindowLength / healthBuckets
)

// HealthWindow counts what an agent did within the last minutes. The zero value is ready. It is not safe for concurrent
// use.
type HealthWindow struct {
	buckets [healthBuckets]healthCounts
	newest  int64 // number of the newest bucket: time divided by its length
}

type healthCounts struct {
	heartbeats, late, completed, failed, unfinished int
	samples                                         int
	cpu, memory                                     float64 // sums of per cent
}

// Sampled notes how much of its host's cpu and memory is in use. They come and go, so their mean counts.
func (w *HealthWindow) Sampled(cpu, memory float64, now time.Time) {
	b := w.at(now)
	b.samples++
	b.cpu += cpu
	b.memory += memory
}

// Heartbeat counts one heartbeat that came gap after the one before, when one is expected every interval.
func (w *HealthWindow) Heartbeat(gap, interval time.Duration, now time.Time) {
	b := w.at(now)
	b.heartbeats++
	if float64(gap) > heartbeatStillGood*float64(interval) {
		b.late++
	}
}

// Ended counts one attempt that began on the agent, by how it ended. Attempts that were cancelled, or taken off it by a
// person or a drain, say nothing about the agent: leave them out.
func (w *HealthWindow) Ended(outcome AttemptOutcome, now time.Time) {
	b := w.at(now)
	switch outcome {
	case AttemptCompleted:
		b.completed++
	case AttemptFailed:
		b.failed++
	case AttemptTimedOut, AttemptReturned:
		b.unfinished++
	}
}

// Facts fills in what the window counted. Without a sample, cpu and memory stay as they are given.
func (w *HealthWindow) Facts(f HealthFacts, now time.Time) HealthFacts {
	w.at(now)
	f.Heartbeats, f.Late, f.Completed, f.Failed, f.Unfinished = 0, 0, 0, 0, 0
	samples, cpu, memory := 0, 0.0, 0.0
	for _, b := range w.buckets {
		samples += b.samples
		cpu += b.cpu
		memory += b.memory
		f.Heartbeats += b.heartbeats
		f.Late += b.late
		f.Completed += b.completed
		f.Failed += b.failed
		f.Unfinished += b.unfinished
	}
	if samples > 0 {
		cpu, memory = cpu/float64(samples), memory/float64(samples)
		f.CPUPercent, f.MemoryPercent = &cpu, &memory
	}
	return f
}

// at is the bucket of a time, after those that have become too old were emptied. Time that runs backwards counts as
// now.
func (w *HealthWindow) at(now time.Time) *healthCounts {
	number := now.UnixNano() / int64(healthBucket)
	switch steps := number - w.newest; {
	case w.newest == 0 || steps >= healthBuckets:
		w.buckets = [healthBuckets]healthCounts{}
		w.newest = number
	case steps > 0:
		for range steps {
			w.newest++
			w.buckets[w.newest%healthBuckets] = healthCounts{}
		}
	}
	return &w.buckets[w.newest%healthBuckets]
}

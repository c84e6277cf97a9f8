package bench

import (
	"context"
	"fmt"
	"time"
)

// contender is one side of a comparison in turns.
type contender struct {
	name string
	n    int // pieces of work in a round; 0: not counted, as what one costs does not matter
	// work does a round, or a part of one, and returns how much was done a second. rest, which may be nil, takes the
	// times of single pieces beside it. work may take them itself.
	work func(ctx context.Context, part float64) (perSecond float64, times []time.Duration, err error)
	rest func(ctx context.Context) ([]time.Duration, error)
}

// warmup is the part of a round that goes before, and does not count.
const warmup = 0.25

// some is a part of n, but one at the least.
func some(part float64, n int) int { return max(1, int(part*float64(n))) }

// Side is what one side did.
type Side struct {
	Name      string    `json:"name"`
	PerSecond []float64 `json:"per_second"` // by round
	Median    float64   `json:"median_per_second"`
	Times               // of single pieces, in all rounds
	P99s      []float64 `json:"p99_ms_by_round,omitempty"`
	ServerCPU float64   `json:"server_cpu_ms_each,omitempty"`
	AllCPU    float64   `json:"all_cpu_ms_each,omitempty"`
	Events    float64   `json:"history_events_each,omitempty"` // where they were counted

	times []time.Duration
	cpu   CPU // of the rounds' work, for pieces
	n     int
}

// compare measures each side once in each round, and none always first, so that a slow minute of the machine hits all.
func (r *run) compare(
	ctx context.Context, rounds int, unit string, used func() CPU, contenders ...contender,
) ([]Side, error) {
	sides := make([]Side, len(contenders))
	for n, c := range contenders {
		sides[n].Name = c.name
		if _, _, err := c.work(ctx, warmup); err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
	}
	for round := range rounds {
		for turn := range contenders {
			n := (turn + round) % len(contenders)
			line, err := sides[n].round(ctx, &contenders[n], used, unit)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", contenders[n].name, err)
			}
			fmt.Fprintf(r.story, "round %d/%d  %-20s %s\n", round+1, rounds, contenders[n].name, line)
		}
	}
	return sides, nil
}

// round measures a side once more, and returns a line about it.
func (s *Side) round(ctx context.Context, c *contender, used func() CPU, unit string) (string, error) {
	before := used()
	perSecond, times, err := c.work(ctx, 1)
	if err != nil {
		return "", err
	}
	cpu := used().minus(before)
	if c.rest != nil {
		if times, err = c.rest(ctx); err != nil {
			return "", err
		}
	}
	s.cpu, s.n = s.cpu.plus(cpu), s.n+c.n
	s.PerSecond, s.times = append(s.PerSecond, perSecond), append(s.times, times...)
	s.Median, s.Times = median(s.PerSecond), timesOf(s.times)
	line := fmt.Sprintf("%8.1f %s", perSecond, unit)
	if c.n > 0 {
		s.ServerCPU = milliseconds(s.cpu.Server) / float64(s.n)
		s.AllCPU = milliseconds(s.cpu.All) / float64(s.n)
		line += fmt.Sprintf("  %.3f ms of processor time each", milliseconds(cpu.Server)/float64(c.n))
	}
	if len(times) > 0 {
		now := timesOf(times)
		s.P99s = append(s.P99s, now.P99)
		line += fmt.Sprintf("  p50 %.1f ms, p99 %.1f ms", now.P50, now.P99)
	}
	return line, nil
}

// sides begins a table of two sides with the rows that each has: what they did a second, and how long pieces took.
func (t table) sides(what, format, times string, bare, mainstay *Side) {
	t.compare(fmt.Sprintf("%s, median of %d rounds", what, len(bare.PerSecond)), format, bare.Median, mainstay.Median)
	t.row(what+", median of the rounds' ratios", "", "",
		fmt.Sprintf("%.2f", medianRatio(mainstay.PerSecond, bare.PerSecond)))
	t.latencies(times, bare.Times, mainstay.Times)
}

// others adds the share of other programs in each side's measurement.
func (t table) others(bare, mainstay *Side) {
	t.row("share of used processor time that other programs took", fmt.Sprintf("%.0f %%", bare.cpu.others()),
		fmt.Sprintf("%.0f %%", mainstay.cpu.others()), "")
}

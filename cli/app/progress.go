package app

import (
	"fmt"
	"io"
	"strings"
	"sync"
)

// Progress shows how far something is: a bar on a terminal, a line for each quarter elsewhere.
type Progress struct {
	To    io.Writer
	TTY   bool
	Unit  string
	Total int

	mu   sync.Mutex
	done int
}

const barWidth = 40

// Step counts one more and returns how many there are.
func (p *Progress) Step() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := 4 * p.done / p.Total
	p.done++
	if p.TTY {
		p.draw()
		if p.done == p.Total {
			fmt.Fprintln(p.To)
		}
		return p.done
	}
	if 4*p.done/p.Total > before {
		fmt.Fprintf(p.To, "%d of %d %s\n", p.done, p.Total, p.Unit)
	}
	return p.done
}

func (p *Progress) draw() {
	filled := barWidth * p.done / p.Total
	fmt.Fprintf(p.To, "\r[%s%s] %d of %d %s", strings.Repeat("#", filled), strings.Repeat(".", barWidth-filled), p.done,
		p.Total, p.Unit)
}

// Tell prints a line between.
func (p *Progress) Tell(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.TTY {
		fmt.Fprintln(p.To, line)
		return
	}
	fmt.Fprintf(p.To, "\r\x1b[K%s\n", line)
	p.draw()
}

package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
)

// progress shows how far something is: a bar on a terminal, a line for each quarter elsewhere.
type progress struct {
	w     io.Writer
	tty   bool
	unit  string
	total int

	mu   sync.Mutex
	done int
}

const barWidth = 40

// step counts one more and returns how many there are.
func (p *progress) step() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := 4 * p.done / p.total
	p.done++
	if p.tty {
		p.draw()
		if p.done == p.total {
			fmt.Fprintln(p.w)
		}
		return p.done
	}
	if 4*p.done/p.total > before {
		fmt.Fprintf(p.w, "%d of %d %s\n", p.done, p.total, p.unit)
	}
	return p.done
}

func (p *progress) draw() {
	filled := barWidth * p.done / p.total
	fmt.Fprintf(p.w, "\r[%s%s] %d of %d %s", strings.Repeat("#", filled), strings.Repeat(".", barWidth-filled), p.done, p.total, p.unit)
}

// tell prints a line between.
func (p *progress) tell(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.tty {
		fmt.Fprintln(p.w, line)
		return
	}
	fmt.Fprintf(p.w, "\r\x1b[K%s\n", line)
	p.draw()
}

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

// step counts one more.
func (p *progress) step() {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := 4 * p.done / p.total
	p.done++
	if p.tty {
		filled := barWidth * p.done / p.total
		fmt.Fprintf(p.w, "\r[%s%s] %d of %d %s", strings.Repeat("#", filled), strings.Repeat(".", barWidth-filled), p.done, p.total, p.unit)
		if p.done == p.total {
			fmt.Fprintln(p.w)
		}
		return
	}
	if 4*p.done/p.total > before {
		fmt.Fprintf(p.w, "%d of %d %s\n", p.done, p.total, p.unit)
	}
}

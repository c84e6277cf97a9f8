// Package proctree ends a command with all of its descendants. An agent runs each command below a guard process, which
// is the agent's own program started again: this package recognises that in its init and does not return to main. The
// guard is the parent of everything that the command leaves behind. It kills the whole tree at the agent's order,
// when the lease of fenced work is over, or when the agent has ended.
//
// It imports as little as possible, so that Go initialises it before most other packages of a program: a guard starts
// in a few milliseconds and keeps little memory. Only Linux has it.
package proctree

// Package proctree ends a command with all of its descendants. An agent runs each command below a guard process, which
// is the agent's own program started again: this package recognises that in its init and does not return to main. The
// guard is the parent of everything that the command leaves behind. It kills the whole tree at the agent's order,
// when the lease of fenced work is over, or when the agent has ended.
//
// A guard has one command at a time, so whatever becomes its child belongs to that. When it has no child any more, it
// takes the next command. To start a guard takes as long as ten commands: Go initialises this package before most
// others of a program, because it imports as little as possible, but the runtime and the program's pages cost the rest.
// Only Linux has it.
package proctree

//go:build !linux

package agent

// listeners cannot be distinguished on this system.
func (*attempt) listeners(int) (found []listener, known bool) { return nil, false }

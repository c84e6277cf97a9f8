//go:build !unix

package guard

func mostConnections() int { return maxConnections }

//go:build !unix

package connlimit

func mostConnections() int { return maxConnections }

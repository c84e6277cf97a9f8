// Package freeport finds ports for servers of tests that must know their port before they listen.
package freeport

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Ports are looked for from low up to high, which is not one of them. The kernel gives higher ones to sockets that ask
// for none (Linux: 32768 and up), so no such socket takes a port between the search and its use.
const low, high = 10_000, 20_000

var (
	mu   sync.Mutex
	next = low + rand.IntN(high-low) // tests of other processes begin elsewhere
)

// Row is the first of n ports in a row that nothing listens on. No port is found twice, until all were.
func Row(n int) (int, error) {
	mu.Lock()
	defer mu.Unlock()
	free := 0
	for range high - low {
		if next == high {
			next, free = low, 0
		}
		if isFree(next) {
			free++
		} else {
			free = 0
		}
		next++
		if free == n {
			return next - n, nil
		}
	}
	return 0, errors.New("there are not so many free ports in a row")
}

// Address is one of loopback with a free port.
func Address() (string, error) {
	port, err := Row(1)
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), err
}

func isFree(port int) bool {
	listener, err := net.Listen("tcp", ":"+strconv.Itoa(port))
	if err != nil {
		return false
	}
	_ = listener.Close()
	return true
}

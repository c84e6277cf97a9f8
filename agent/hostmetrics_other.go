//go:build !linux

package agent

func readHost() (stat, meminfo []byte) { return nil, nil }

func diskUse() (used, total uint64, ok bool) { return 0, 0, false }

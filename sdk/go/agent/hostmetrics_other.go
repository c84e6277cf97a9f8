//go:build !linux

package agent

func readHost() (stat, meminfo []byte) { return nil, nil }

func diskUse() (used, total uint64, ok bool) { return 0, 0, false }

func diskFree() uint64 { return 0 }

func memoryLimit() (limit uint64, ok bool) { return 0, false }

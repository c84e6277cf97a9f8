//go:build unix && !linux

package agent

import "syscall"

func dieWithParent(*syscall.SysProcAttr) {}

//go:build unix

package controlplane

import (
	"io/fs"
	"os"
	"syscall"
)

// Foreign reports whether a file belongs to a user who is neither this process's nor root: that user can change it.
func Foreign(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && stat.Uid != 0 && int(stat.Uid) != os.Geteuid()
}

//go:build !unix

package app

import "os"

// terminalColumns is 0: the width is not known.
func terminalColumns(*os.File) int { return 0 }

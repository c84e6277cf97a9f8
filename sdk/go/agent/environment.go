package agent

import (
	"os"
	"slices"
	"strings"
)

// plainVariables are what programs need to run at all, and no secrets. The last are of Windows.
var plainVariables = []string{
	"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "LANGUAGE", "TZ", "TMPDIR",
	"SSL_CERT_FILE", "SSL_CERT_DIR",
	"SYSTEMROOT", "WINDIR", "COMSPEC", "PATHEXT", "USERPROFILE", "TEMP", "TMP",
}

// plain reports whether an entry of an environment is of a plain variable, or of one of the names.
func plain(entry string, names []string) bool {
	name, _, _ := strings.Cut(entry, "=")
	return slices.Contains(names, name) || strings.HasPrefix(name, "LC_") ||
		slices.ContainsFunc(plainVariables, func(other string) bool { return strings.EqualFold(name, other) })
}

// CommandEnvironment is the part of this process's environment that a submitted command may see: the variables that
// programs need to run at all, such as PATH, HOME, LANG and TZ, and the named ones. Handlers that start processes
// should give them no more, because the rest may hold secrets.
func CommandEnvironment(names ...string) []string {
	return slices.DeleteFunc(os.Environ(), func(entry string) bool { return !plain(entry, names) })
}

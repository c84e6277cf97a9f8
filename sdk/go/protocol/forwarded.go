package protocol

import (
	"net/http"
	"slices"
)

// Forwarded reports whether a request says that it came by a proxy. A proxy may hide that.
func Forwarded(r *http.Request) bool {
	return slices.ContainsFunc([]string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded",
		"X-Real-IP", "Via"}, func(name string) bool { return r.Header.Get(name) != "" })
}

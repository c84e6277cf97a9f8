// Command generate writes the dashboards to deploy/grafana. It runs in deploy/dashboards, by go generate.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"mainstay.dev/mainstay/deploy/dashboards"
)

func main() {
	for name, d := range dashboards.All() {
		text, err := d.JSON()
		if err == nil {
			err = os.WriteFile(filepath.Join("..", "grafana", name), text, 0o644) //nolint:gosec // for everybody to read
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

package page_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/evanw/esbuild/pkg/api"
	"github.com/stretchr/testify/require"
)

var write = flag.Bool("write", false, "write the scripts in bundle anew")

// The scripts in bundle are what esbuild makes of the modules in static.
func TestBundle(t *testing.T) {
	t.Parallel()
	for _, entry := range []string{"early.js", "app.js"} {
		t.Run(entry, func(t *testing.T) {
			t.Parallel()
			made := api.Build(api.BuildOptions{
				EntryPoints:      []string{filepath.Join("static", entry)},
				Bundle:           true,
				Format:           api.FormatIIFE,
				Target:           api.ES2022,
				Charset:          api.CharsetUTF8,
				MinifyWhitespace: true, MinifyIdentifiers: true, MinifySyntax: true, LogLevel: api.LogLevelSilent,
			})
			require.Empty(t, made.Errors)
			require.Empty(t, made.Warnings)
			require.Len(t, made.OutputFiles, 1)
			file := filepath.Join("bundle", entry)
			if *write {
				require.NoError(t, os.WriteFile(file, made.OutputFiles[0].Contents, 0o644))
			}
			committed, err := os.ReadFile(file)
			require.NoError(t, err)
			require.True(t, string(committed) == string(made.OutputFiles[0].Contents),
				"%s is not what the modules in static make: run make page", file)
		})
	}
}

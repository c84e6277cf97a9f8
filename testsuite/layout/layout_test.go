// Package layout_test compares the table of docs/ARCHITECTURE.md ("Layout") with what the packages import, and looks for the
// files and folders that the document names.
package layout_test

import (
	"flag"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var write = flag.Bool("write", false, "write the table's column of imports anew")

const (
	document = "../../docs/ARCHITECTURE.md"
	heading  = "## Layout"
)

// folders are a row's: its folders, as patterns, and the folders of ours that its packages import.
type row struct {
	line    int // of the document
	folders []string
	imports []string // those of other rows, each once
}

// TestImports has every package in one row, and no row import one that stands below it.
func TestImports(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(document)
	require.NoError(t, err)
	lines := strings.Split(string(text), "\n")
	rows := rowsOf(t, lines)
	imports := importsOf(t)
	for folder, imported := range imports {
		at := rowOf(rows, folder)
		require.GreaterOrEqual(t, at, 0, "%s is in no row of the table", folder)
		for _, i := range imported {
			of := rowOf(rows, i)
			require.GreaterOrEqual(t, of, 0, "%s is in no row of the table", i)
			assert.LessOrEqual(t, of, at, "%s imports %s, which stands below it: move the code, or the row", folder, i)
			if of == at && sameFolder(rows[at], folder, i) {
				continue
			}
			if name := nameIn(rows[of], i); !slices.Contains(rows[at].imports, name) {
				rows[at].imports = append(rows[at].imports, name)
			}
		}
	}
	for _, r := range rows {
		want := cells(lines[r.line])
		want[2] = listed(rows, r.imports)
		if *write {
			lines[r.line] = "| " + strings.Join(want, " | ") + " |"
			continue
		}
		assert.Equal(t, want[2], cells(lines[r.line])[2], "what %s imports has changed. If it is meant: "+
			"go test ./testsuite/layout -args -write", strings.Join(r.folders, ", "))
	}
	if *write {
		require.NoError(t, os.WriteFile(document, []byte(strings.Join(lines, "\n")), 0o600))
	}
}

// TestPathsExist looks for each file and folder that the document names. One with a placeholder, such as <subject>, is a
// pattern for a reader.
func TestPathsExist(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(document)
	require.NoError(t, err)
	found := regexp.MustCompile("`((?:[a-z]+/)+[^`<]*)`").FindAllStringSubmatch(string(text), -1)
	looked := 0
	for _, match := range found {
		top, _, _ := strings.Cut(match[1], "/")
		if _, err := os.Stat(filepath.Join("../..", top)); err != nil {
			continue // a name of something else, such as a task queue
		}
		files, err := filepath.Glob(filepath.Join("../..", match[1]))
		require.NoError(t, err)
		assert.NotEmpty(t, files, "there is no %s any more: name what took its place", match[1])
		looked++
	}
	require.Greater(t, looked, 100)
}

func rowsOf(t *testing.T, lines []string) []row {
	var rows []row
	for i := slices.Index(lines, heading) + 1; i < len(lines) && !strings.HasPrefix(lines[i], "## "); i++ {
		if cells := cells(lines[i]); len(cells) == 3 && strings.HasPrefix(cells[0], "`") {
			r := row{line: i}
			for folder := range strings.SplitSeq(cells[0], ", ") {
				r.folders = append(r.folders, strings.Trim(folder, "`"))
			}
			rows = append(rows, r)
		}
	}
	require.NotEmpty(t, rows, "the table is under %q", heading)
	return rows
}

func cells(line string) []string {
	if !strings.HasPrefix(line, "| ") || !strings.HasSuffix(line, " |") {
		return nil
	}
	return strings.Split(line[2:len(line)-2], " | ")
}

// rowOf is the row with the longest pattern that the folder matches, else -1.
func rowOf(rows []row, folder string) int {
	best, at := 0, -1
	for i, r := range rows {
		if name := nameIn(r, folder); len(name) > best {
			best, at = len(name), i
		}
	}
	return at
}

// nameIn is the row's longest pattern that the folder matches, else "". a/ matches a and all below it, a/*/ all below it.
func nameIn(r row, folder string) string {
	best := ""
	for _, pattern := range r.folders {
		above, star := strings.CutSuffix(pattern, "*/")
		if len(pattern) > len(best) && (strings.HasPrefix(folder+"/", above) && !(star && folder+"/" == above)) {
			best = pattern
		}
	}
	return best
}

// sameFolder is true for a package and one of its own folder. Of a/*/, a/b and a/c are two.
func sameFolder(r row, one, other string) bool {
	name := nameIn(r, one)
	above, star := strings.CutSuffix(name, "*/")
	if !star || name != nameIn(r, other) {
		return name == nameIn(r, other)
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(one, above), "/")
	second, _, _ := strings.Cut(strings.TrimPrefix(other, above), "/")
	return first == second
}

// listed are names in the table's order.
func listed(rows []row, names []string) string {
	var list []string
	for _, r := range rows {
		for _, folder := range r.folders {
			if slices.Contains(names, folder) {
				list = append(list, "`"+strings.TrimSuffix(folder, "/")+"`")
			}
		}
	}
	if len(list) == 0 {
		return "nothing"
	}
	return strings.Join(list, ", ")
}

// importsOf are the folders of all packages, with those of ours that each imports, its tests left out.
func importsOf(t *testing.T) map[string][]string {
	command := exec.CommandContext(t.Context(), "go", "list", "-f", `{{if .GoFiles}}{{.ImportPath}} {{join .Imports " "}}{{end}}`,
		"./...", "mainstay.dev/sdk/...")
	command.Dir = "../.."
	output, err := command.Output()
	require.NoError(t, err)
	imports := map[string][]string{}
	for line := range strings.Lines(string(output)) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		folder, _ := folderOf(words[0])
		imports[folder] = nil
		for _, imported := range words[1:] {
			if f, ours := folderOf(imported); ours {
				imports[folder] = append(imports[folder], f)
			}
		}
	}
	return imports
}

// folderOf is where in the repository a package of ours is.
func folderOf(importPath string) (folder string, ours bool) {
	if f, found := strings.CutPrefix(importPath, "mainstay.dev/mainstay/"); found {
		return f, true
	}
	f, found := strings.CutPrefix(importPath, "mainstay.dev/sdk/")
	return path.Join("sdk/go", f), found
}

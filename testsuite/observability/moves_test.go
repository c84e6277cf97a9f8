package observability

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// comparison is a call that looks at a value, or waits for one; Len, Contains and the like see names only.
var comparison = regexp.MustCompile(`^(Equal|EqualValues|InDelta|Greater|Less|Zero|Eventually|GatherAndCompare)$`)

// TestEveryMetricIsNamedByATestOfValues: a test outside this folder, which checks names only, names each metric in a
// function that compares values. That the values move is for those tests: testsuite/e2e, TestEveryMetricIsSeenMoving.
func TestEveryMetricIsNamedByATestOfValues(t *testing.T) {
	t.Parallel()
	unseen := map[string]bool{}
	for _, m := range catalogue(t) {
		unseen[m.Name] = true
	}
	require.NotEmpty(t, unseen)
	here, err := filepath.Abs(".")
	require.NoError(t, err)
	require.NoError(t, filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		if full, err := filepath.Abs(path); err != nil || filepath.Dir(full) == here {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, declared := range file.Decls {
			if f, ok := declared.(*ast.FuncDecl); ok {
				for _, name := range compared(f) {
					delete(unseen, name)
				}
			}
		}
		return nil
	}))
	require.Empty(t, unseen)
}

// compared are the metrics that a function names, if it compares values.
func compared(f *ast.FuncDecl) (names []string) {
	compares := false
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			compares = compares || comparison.MatchString(n.Sel.Name)
		case *ast.BasicLit:
			if n.Kind == token.STRING {
				names = append(names, metricName.FindAllString(n.Value, -1)...)
			}
		}
		return true
	})
	if !compares {
		return nil
	}
	return names
}

package api_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/api"
)

// TestRecordsNameAllTheirValues: clients generate types from the enums, so each constant of a type is in them.
func TestRecordsNameAllTheirValues(t *testing.T) {
	t.Parallel()
	constants := map[string][]string{}
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 {
				return true
			}
			kind, typed := spec.Type.(*ast.Ident)
			text, isText := spec.Values[0].(*ast.BasicLit)
			if typed && isText && text.Kind == token.STRING {
				if value, _ := strconv.Unquote(text.Value); value != "" {
					constants[kind.Name] = append(constants[kind.Name], value)
				}
			}
			return true
		})
	}
	for _, record := range []reflect.Type{reflect.TypeFor[api.FailoverRecord](), reflect.TypeFor[api.HealingRecord](),
		reflect.TypeFor[api.Attempt](), reflect.TypeFor[api.ScalingRecord](), reflect.TypeFor[api.ScaledAgent]()} {
		enums := 0
		for f := range record.Fields() {
			values := constants[f.Type.Name()]
			if len(values) == 0 || f.Type.PkgPath() != record.PkgPath() || f.Type.Kind() != reflect.String {
				continue
			}
			if f.Name == "Platform" {
				continue // each spawner has its own
			}
			enums++
			require.ElementsMatch(t, values, slices.DeleteFunc(strings.Split(f.Tag.Get("enum"), ","),
				func(v string) bool { return v == "" }), "%s.%s", record.Name(), f.Name)
		}
		require.Positive(t, enums, record.Name())
	}
}

package worker_test

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/activities"
)

// declared finds what the package contract declares: a message, its kind and its name in Temporal; or a workflow type.
var (
	declared = regexp.MustCompile(`(?m)^(?:var )?\t?(\w+(Update|Query|Signal|Activity)) += \w+\[.*\]\{"([\w-]+)"\}$`)
	flows    = regexp.MustCompile(`(?m)^(?:const )?\t?(\w+Workflow) += "\w+"$`)
)

// TestEveryNameIsHandled reads the sources: a message that nothing handles would wait for ever.
func TestEveryNameIsHandled(t *testing.T) {
	t.Parallel()
	contract := source(t, "../internal/contract")
	inWorkflows := source(t, "../workflows") + source(t, "../workflows/*")
	registered := source(t, "../internal/hub") + source(t, "../internal/spawner") + source(t, ".")
	messages := declared.FindAllStringSubmatch(contract, -1)
	require.Greater(t, len(messages), 80)
	for _, m := range messages {
		message, kind, name := m[1], m[2], m[3]
		switch kind {
		case "Update", "Query":
			handled := strings.Contains(inWorkflows, "contract."+message+".Handle(") ||
				strings.Contains(inWorkflows, ", contract."+message+",")
			require.True(t, handled, "no workflow answers %s", message)
		case "Signal":
			require.True(t, strings.Contains(inWorkflows, "contract."+message+".Inbox("), "no workflow receives %s",
				message)
		case "Activity":
			byHub := strings.Contains(registered, "contract."+message+".Register(") ||
				strings.Contains(registered, "Name: contract."+message+".Name}")
			require.True(t, byHub || isMethod(name) || message == "RunTaskActivity", "nothing does activity %s", name)
		}
	}
	types := flows.FindAllStringSubmatch(contract, -1)
	require.Greater(t, len(types), 10)
	for _, w := range types {
		require.True(t, strings.Contains(registered, "Name: contract."+w[1]+"}"), "the worker does not register %s",
			w[1])
	}
}

// isMethod reports whether a struct that the worker registers has an activity of this name. Hubs poll RunTask by hand.
func isMethod(name string) bool {
	for _, registered := range []any{&activities.Control{}, &activities.FailoverMetrics{},
		&activities.HealingMetrics{}, &activities.Evaluator{}, &activities.Dispatcher{}} {
		if _, found := reflect.TypeOf(registered).MethodByName(name); found {
			return true
		}
	}
	return false
}

// source is the text of a folder's Go files that are no tests.
func source(t *testing.T, folder string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	require.NoError(t, err)
	var all strings.Builder
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		all.Write(text)
	}
	return all.String()
}

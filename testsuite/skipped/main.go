// Command skipped reads what `go test -json` prints, tells it as plain `go test` does, and writes the tests that were
// skipped, each with its reason, to a file: plain `go test` says nothing of them, and .ci/run must.
//
//	go test -json ./... | skipped FILE
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go test -json ./... | skipped FILE")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "skipped:", err)
		os.Exit(1)
	}
}

// run adds to the file: there may be several runs of go test.
func run(path string) (err error) {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return tell(os.Stdin, os.Stdout, file)
}

// maxLine bounds one line of a test's output, in bytes.
const maxLine = 16 << 20

// event is one line of `go test -json`; see `go doc cmd/test2json` and `go help buildjson`.
type event struct{ Action, Package, Test, Output string }

// tell writes the output of packages, of builds and of failed tests to said, and a line for each skipped test to skips.
func tell(events io.Reader, said, skips io.Writer) error {
	outputs := map[string]map[string][]string{} // of the tests that have not ended, by package
	out := bufio.NewWriter(said)
	say := func(text string) { _, _ = out.WriteString(text) } // Flush tells of errors
	lines := bufio.NewScanner(events)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil { // go's own words
			e = event{Action: "build-output", Output: lines.Text() + "\n"}
		}
		tests := outputs[e.Package]
		if tests == nil {
			tests = map[string][]string{}
			outputs[e.Package] = tests
		}
		switch {
		case e.Action == "build-output", e.Action == "output" && e.Test == "" && e.Output != "PASS\n":
			say(e.Output)
		case e.Action == "output" && e.Test != "" && !strings.HasPrefix(e.Output, "=== "):
			tests[e.Test] = append(tests[e.Test], e.Output)
		case e.Action == "fail" && e.Test != "":
			say(strings.Join(tests[e.Test], ""))
		case e.Action == "fail": // a package: a panic or a timeout ends it with tests under way
			for _, text := range tests {
				say(strings.Join(text, ""))
			}
		case e.Action == "skip" && e.Test != "":
			if _, err := fmt.Fprintf(skips, "%s %s: %s\n", e.Package, e.Test, reason(tests[e.Test])); err != nil {
				return err
			}
		}
		if e.Action == "pass" || e.Action == "fail" || e.Action == "skip" {
			delete(tests, e.Test)
			if err := out.Flush(); err != nil {
				return err
			}
		}
	}
	return errors.Join(lines.Err(), out.Flush())
}

// reason is what a skipped test said, without the lines of its own result.
func reason(output []string) string {
	var words []string
	for _, line := range output {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "--- SKIP") {
			words = append(words, line)
		}
	}
	if len(words) == 0 {
		return "it gives no reason"
	}
	return strings.Join(words, " ")
}

package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"mainstay.dev/mainstay/textfile"
)

// Load reads and checks the file at path.
func Load(path string) (*Config, error) {
	if path == "" {
		return Default(), nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	return Parse(path, text)
}

// Parse reads and checks a configuration; name stands for the file in errors, which are of type *Error. An empty text
// gives Default.
func Parse(name string, text []byte) (*Config, error) {
	c, _, err := parse(name, text)
	return c, err
}

// parse also returns where each key stands.
func parse(name string, text []byte) (*Config, *inspection, error) {
	text, err := textfile.Clean(text)
	if err != nil {
		p := Problem{File: name, What: err.Error()}
		if wrong, ok := errors.AsType[*textfile.NotUTF8Error](err); ok {
			p.Line, p.What = wrong.Line, "is not UTF-8: write it as UTF-8"
		}
		return nil, nil, &Error{[]Problem{p}}
	}
	var document yaml.Node
	documents := yaml.NewDecoder(bytes.NewReader(text))
	if err := documents.Decode(&document); errors.Is(err, io.EOF) {
		return Default(), &inspection{file: name}, nil
	} else if err != nil {
		return nil, nil, yamlError(name, err)
	}
	if err := documents.Decode(&yaml.Node{}); err == nil {
		return nil, nil, &Error{[]Problem{{File: name,
			What: `must hold one YAML document; remove what follows the second "---"`}}}
	} else if !errors.Is(err, io.EOF) {
		return nil, nil, yamlError(name, err)
	}

	found := inspect(name, &document)
	c := blank()
	if _, given := found.lines["agent_cluster"]; given {
		c.AgentCluster = blankAgentCluster()
	}
	problems := found.problems
	if err := document.Decode(c); err == nil {
		c.fill()
		problems = append(problems, found.placed(c.problems())...)
	} else if len(problems) == 0 { // else what is wrong in form hides the rest
		return nil, nil, yamlError(name, err)
	}
	if len(problems) > 0 {
		return nil, nil, &Error{problems}
	}
	return c, found, nil
}

// placed are the problems with where they are, but for those that may only follow from what could not be read.
func (in *inspection) placed(problems []Problem) []Problem {
	problems = slices.DeleteFunc(problems, in.doubtful)
	for i := range problems {
		problems[i].File, problems[i].Line = in.file, in.line(problems[i].Field)
	}
	return problems
}

// Error says everything that is wrong with a configuration.
type Error struct {
	Problems []Problem // at least one
}

// Error has one line for each problem.
func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Problem is one thing that is wrong.
type Problem struct {
	File  string // empty when the configuration is from no file
	Line  int    // 0: unknown
	Field string // such as hub.park or clusters[0].name; empty: the whole file
	What  string // what is wrong and what is allowed
}

// String is file:line: field: what.
func (p Problem) String() string {
	var b strings.Builder
	if p.File != "" {
		b.WriteString(p.File)
		if p.Line > 0 {
			fmt.Fprintf(&b, ":%d", p.Line)
		}
		b.WriteString(": ")
	}
	if p.Field != "" {
		b.WriteString(p.Field + ": ")
	}
	return b.String() + p.What
}

// yamlError places what the YAML reader says ("yaml: line 3: …").
func yamlError(name string, err error) error {
	p := Problem{File: name, What: strings.TrimPrefix(err.Error(), "yaml: ")}
	if rest, found := strings.CutPrefix(p.What, "line "); found {
		if n, scanErr := fmt.Sscanf(rest, "%d:", &p.Line); n == 1 && scanErr == nil {
			_, p.What, _ = strings.Cut(rest, ": ")
		}
	}
	p.What = "not valid YAML: " + p.What
	if strings.HasSuffix(p.What, "cannot start any token") { // nearly always a tab
		p.What += "; lines are indented with blanks, not with tabs"
	}
	return &Error{[]Problem{p}}
}

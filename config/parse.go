package config

import (
	"fmt"
	"os"
	"slices"

	"mainstay.dev/mainstay/document"
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
	root, err := document.Tree(name, text)
	if err != nil {
		return nil, nil, err
	}
	if root == nil {
		return Default(), &inspection{file: name}, nil
	}
	found := inspect(name, root)
	c := blank()
	if _, given := found.lines["agent_cluster"]; given {
		c.AgentCluster = blankAgentCluster()
	}
	problems := found.problems
	if err := root.Decode(c); err == nil {
		c.fill()
		problems = append(problems, found.placed(c.problems())...)
	} else if len(problems) == 0 { // else what is wrong in form hides the rest
		return nil, nil, &Error{Problems: []Problem{{File: name, What: err.Error()}}}
	}
	if len(problems) > 0 {
		return nil, nil, &Error{Problems: problems}
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

// Error says what is wrong with a configuration, as with other documents.
type Error = document.Error

// Problem is one part of an Error.
type Problem = document.Problem

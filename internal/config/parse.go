package config

import (
	"fmt"
	"os"

	"mainstay.dev/mainstay/internal/config/document"
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
func parse(name string, text []byte) (*Config, *document.Places, error) {
	c := blank()
	places, err := document.ReadSettings(name, text, c)
	if err != nil {
		return nil, nil, err
	}
	c.fill()
	problems := c.problems()
	for i, p := range problems {
		problems[i] = places.Place(p.Field, "%s", p.What)
	}
	if len(problems) > 0 {
		return nil, nil, &Error{Problems: problems}
	}
	return c, places, nil
}

// Error lists the errors of a configuration, as of any other document.
type Error = document.Error

// Problem is one part of an Error.
type Problem = document.Problem

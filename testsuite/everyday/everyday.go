// Package everyday tests what people type: small cases over the command line and the REST API against one running
// control plane. Each bug that a user could meet gets its case in cases/SUBJECT.txt:
//
//	# cron: seven is Sunday (1)
//	mainstay schedule create "$ID" --cron '0 3 * * 7' --cluster default -- true
//	exit 0: 0 3 * * 7
//	not: page_token
//
// The first line has a unique name; a number in brackets is that of the finding. Shell lines follow, up to the line
// with the exit code and, if it matters, a text that the output has. Each line `has: TEXT` or `not: TEXT` after it
// names a text that standard output and standard error together must or must not have; `like: REGEXP` is an expression
// that must match.
//
// The shell finds `mainstay` in its PATH, MAINSTAY_SERVER, $API (the address of the REST API), $ID (a name that no
// other case has), $DOCS (the documents), curl, and an empty working directory; it has no terminal. `eventually COMMAND TEXT` repeats a
// command until its output has the text, and ends the case when it never has. `agent FLAGS…` starts an agent of the
// cluster $ID until the case ends; $agents are their processes. `problem KIND` says whether the overview has a problem of
// that kind and cluster: there, or gone.
package everyday

import (
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// Case is one input and what must come of it.
type Case struct {
	Name   string
	Where  string // file and line
	Script string
	Exit   int
	Has    []string
	Not    []string
	Like   []*regexp.Regexp
}

// Read reads all cases of a folder, in the order of its files.
func Read(dir string) ([]Case, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil {
		return nil, err
	}
	var all []Case
	named := map[string]string{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		cases, err := parse(filepath.Base(file), string(data))
		if err != nil {
			return nil, err
		}
		for _, c := range cases {
			if other, is := named[c.Slug()]; is {
				return nil, fmt.Errorf("%s: %s has this name already", c.Where, other)
			}
			named[c.Slug()] = c.Where
		}
		all = append(all, cases...)
	}
	return all, nil
}

var unsafe = regexp.MustCompile(`[^a-z0-9]+`)

// Slug is the beginning of the name as an id, and a hash of it all: 28 characters at most, since a job's name has 30.
func (c Case) Slug() string {
	slug := unsafe.ReplaceAllString(strings.ToLower(c.Name), "-")
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(c.Name)) // it never fails
	return fmt.Sprintf("%s-%06x", strings.Trim(slug[:min(len(slug), 21)], "-"), hash.Sum32()>>8)
}

var exitLine = regexp.MustCompile(`^exit (\d+)(?:: (.+))?$`)

func parse(file, text string) ([]Case, error) {
	var cases []Case
	var current *Case
	var script []string
	inScript := false
	for i, line := range strings.Split(text, "\n") {
		where := fmt.Sprintf("%s:%d", file, i+1)
		exit := exitLine.FindStringSubmatch(line)
		word, value, _ := strings.Cut(line, ": ")
		switch {
		case !inScript && strings.HasPrefix(line, "# "):
			cases = append(cases, Case{Name: strings.TrimSpace(line[2:]), Where: where})
			current, script, inScript = &cases[len(cases)-1], nil, true
		case inScript && exit != nil:
			current.Exit, _ = strconv.Atoi(exit[1]) // the expression lets only digits through
			if exit[2] != "" {
				current.Has = append(current.Has, exit[2])
			}
			if current.Script = strings.Join(script, "\n"); strings.TrimSpace(current.Script) == "" {
				return nil, fmt.Errorf("%s: the case has no command", where)
			}
			inScript = false
		case inScript:
			script = append(script, line)
		case strings.TrimSpace(line) == "":
		case current == nil:
			return nil, fmt.Errorf("%s: a case begins with a line `# NAME`", where)
		case word == "has":
			current.Has = append(current.Has, value)
		case word == "not":
			current.Not = append(current.Not, value)
		case word == "like":
			like, err := regexp.Compile(value)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", where, err)
			}
			current.Like = append(current.Like, like)
		default:
			return nil, fmt.Errorf("%s: after the exit code come `has:`, `not:`, `like:` or the next case", where)
		}
	}
	if inScript {
		return nil, fmt.Errorf("%s: the last case has no line `exit N`", file)
	}
	return cases, nil
}

// Check says what differs from what the case wants; nothing if all is as wanted.
func (c Case) Check(exit int, output string) []string {
	var wrong []string
	if exit != c.Exit {
		wrong = append(wrong, fmt.Sprintf("it exits with %d instead of %d", exit, c.Exit))
	}
	for _, text := range c.Has {
		if !strings.Contains(output, text) {
			wrong = append(wrong, fmt.Sprintf("its output lacks %q", text))
		}
	}
	for _, text := range c.Not {
		if strings.Contains(output, text) {
			wrong = append(wrong, fmt.Sprintf("its output has %q", text))
		}
	}
	for _, like := range c.Like {
		if !like.MatchString(output) {
			wrong = append(wrong, fmt.Sprintf("its output does not match %s", like))
		}
	}
	return wrong
}

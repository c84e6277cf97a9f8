package document

import (
	"cmp"
	"regexp"
	"sort"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

var (
	// lineValue finds what a line gives a key or an item: the text before it, and the value.
	lineValue = regexp.MustCompile(`^(\s*(?:- +)*(?:(?:"[^"]*"|'[^']*'|[^\s"'#\[{][^"'#]*?): +)?)(\S.*?)\s*(?: #.*)?$`)
	// needsQuotes finds the values that YAML takes for something else than text.
	needsQuotes = regexp.MustCompile("^[*&@%`!,\\]}]|^[|>] *[^-+0-9 ]|^[-?] |^\\{\\{|^\"[^\"]*\" *[^\" ]|^'[^']*' *[^' ]")
	// keyed finds the key of a line, and keyInValue what looks like a second one.
	keyed, keyInValue = regexp.MustCompile(`: +$`), regexp.MustCompile(`: |:$`)
	// itemValue finds values that need quotes in a list or a map on one line.
	itemValue = regexp.MustCompile("(?:[\\[{,] *|: +)([*&@%`!][^,\\[\\]{}]*)")
)

// maxReread bounds the bytes that are read again to find a value that needs quotes.
const maxReread = 4 << 20

// unquoted finds the first value that YAML refuses for its lack of quotes: with quotes, the error is another one, or
// none. Its lines are better than the reader's, which often names where the section begins.
func unquoted(text string, refused error, from int) *Problem {
	lines := strings.Split(text, "\n")
	for i, reread := max(from-2, 0), 0; i < len(lines) && reread < maxReread; i++ {
		quoted, column := quote(lines[i])
		if quoted == lines[i] {
			continue
		}
		found := Problem{Line: i + 1, Column: column, What: "put it in quotes: " + strings.TrimLeft(quoted, " -")}
		lines[i], reread = quoted, reread+len(text)
		if err := yaml.Unmarshal([]byte(strings.Join(lines, "\n")), &yaml.Node{}); err == nil ||
			err.Error() != refused.Error() {
			return &found
		}
	}
	return nil
}

// quote is a line with quotes around the values that need them, without its comment; column is where the first stands.
func quote(line string) (quoted string, column int) {
	at := lineValue.FindStringSubmatchIndex(line)
	if at == nil {
		return line, 0
	}
	values := [][]int{at[4:6]}
	switch value := line[at[4]:at[5]]; {
	case needsQuotes.MatchString(value):
	case value[0] == '[' || value[0] == '{':
		values = nil
		for _, item := range itemValue.FindAllStringSubmatchIndex(line[:at[5]], -1) {
			values = append(values, item[2:4])
		}
	case !keyed.MatchString(line[:at[4]]) || !keyInValue.MatchString(value):
		return line, 0
	}
	end := 0
	for _, v := range values {
		value := strings.TrimRight(line[v[0]:v[1]], " ")
		text := `"` + value + `"`
		if strings.ContainsAny(value, `"\`) {
			text = "'" + strings.ReplaceAll(value, "'", "''") + "'"
		}
		quoted += line[end:v[0]] + text
		end, column = v[0]+len(value), cmp.Or(column, v[0]+1)
	}
	return quoted + line[end:at[5]], column
}

// misfit finds the line from which on YAML refuses a text: the reader names where its section begins.
func misfit(text []byte, refused error) (line, column int) {
	lines := strings.SplitAfter(string(text), "\n")
	n := sort.Search(len(lines), func(n int) bool {
		err := yaml.Unmarshal([]byte(strings.Join(lines[:n+1], "")), &yaml.Node{})
		return err != nil && err.Error() == refused.Error()
	})
	if n == len(lines) {
		n--
	}
	return n + 1, len(lines[n]) - len(strings.TrimLeft(lines[n], " ")) + 1
}

// syntaxError places what the YAML reader says ("yaml: line 3: …").
func syntaxError(name string, text []byte, err error) error {
	p := Problem{What: strings.TrimPrefix(err.Error(), "yaml: "), Column: 1}
	if rest, found := strings.CutPrefix(p.What, "line "); found {
		line, what, _ := strings.Cut(rest, ": ")
		if n, wrong := strconv.Atoi(line); wrong == nil {
			p.Line, p.What = n, what
		}
	}
	var found *Problem
	if !strings.HasSuffix(p.What, "end of stream") { // an unclosed quote is its cause
		found = unquoted(string(text), err, p.Line)
	}
	if found != nil {
		p = *found
	} else if strings.HasPrefix(p.What, "did not find expected key") || strings.HasSuffix(p.What, "'-' indicator") {
		p.Line, p.Column = misfit(text, err)
		p.What = "does not fit what stands above it: indent it like the other lines of its section"
	} else if p.What = "is not valid YAML: " + p.What; strings.HasSuffix(p.What, "cannot start any token") {
		p.What += "; lines are indented with blanks, not with tabs" // nearly always a tab
	}
	p.File = name
	return &Error{[]Problem{p}}
}

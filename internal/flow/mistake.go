package flow

import (
	"fmt"
	"regexp"
	"strings"

	"cel.dev/cel-go/common"
)

// mistake says why a text is no CEL, in one line.
type mistake struct {
	what   string
	column int    // from 1
	remedy string // what to write instead, if that is known
	word   bool   // it is a word that means nothing: maybe a text, or a shell's
	types  bool   // it is CEL, but for types
}

func (m *mistake) Error() string {
	remedy := m.remedy
	if m.word {
		remedy = "write text in quotes"
	}
	if remedy != "" {
		remedy = "; " + remedy
	}
	return fmt.Sprintf("is not valid CEL: %s%s (column %d of the expression)", m.what, remedy, m.column)
}

// inText is the mistake of an expression in a text: it may be meant for a shell.
func (m *mistake) inText(source string) *mistake {
	if m.remedy != "" || m.types {
		return m
	}
	remedy := "what a shell is to read is written $${" + source + "}"
	if inner, ok := strings.CutPrefix(source, "{"); ok {
		remedy = "an expression has one brace: ${" + strings.Trim(inner, " }") + "}"
	}
	return &mistake{what: m.what, column: m.column, remedy: remedy}
}

// hyphened finds what reads a name with a hyphen, which CEL takes for a minus.
var hyphened = regexp.MustCompile(`([A-Za-z_]\w*(?:\.\w+)*)\.(\w+(?:-\w+)+)`)

// elsewhereFunctions are functions that other systems have.
var elsewhereFunctions = map[string]string{
	"always": askStatus, "success": askStatus, "failure": askStatus, "cancelled": askStatus,
	"json": lastLine, "fromJSON": lastLine, "fromJson": lastLine, "parseJson": lastLine, "from_json": lastLine,
}

const (
	askStatus = `ask for the status of a step, as in steps.build.status == "completed"`
	lastLine  = `a command hands on data with a last line like {"complete_step": {"n": 1}}, which is its result then`
)

// mistakeIn is CEL's own error as people write.
func mistakeIn(source string, first *common.Error) *mistake {
	what, _, _ := strings.Cut(first.Message, "\n")
	what = strings.TrimPrefix(what, "Syntax error: ")
	m := &mistake{column: first.Location.Column() + 1}
	if found := staticMismatch.FindStringSubmatch(what); found != nil {
		m.what, m.types = mismatch(found[1], aType.FindAllString(found[2], -1)), true
		return m
	}
	at := offset(source, first.Location)
	if name, found := strings.CutPrefix(what, "undeclared reference to '"); found {
		name, _, _ = strings.Cut(name, "'")
		if strings.HasPrefix(source[at:], "(") {
			m.what, m.remedy = "there is no function "+name, elsewhereFunctions[name]
			return m
		}
		m.what, m.word = "there is no variable "+name, true
		for _, read := range hyphened.FindAllStringSubmatchIndex(source, -1) {
			if read[4] < at && at < read[5] {
				m.word, m.remedy = false, fmt.Sprintf("a name with - is written %s['%s']", source[read[2]:read[3]],
					source[read[4]:read[5]])
			}
		}
		return m
	}
	if strings.HasPrefix(what, "token recognition error") {
		switch {
		case strings.HasPrefix(source[at:], "${"):
			m.remedy = "an expression stands here without ${ and }"
		case strings.Contains(source, "\n"):
			m.remedy = `write a line break in a text as \n, between double quotes of YAML as \\n`
		}
	}
	what, _, _ = strings.Cut(what, " expecting ")
	m.what = strings.NewReplacer("mismatched input '<EOF>'", "it ends too early", "mismatched input", "unexpected",
		"extraneous input", "unexpected", "token recognition error at:", "unexpected").Replace(what)
	return m
}

// offset is where in a text a place of CEL is, in bytes.
func offset(source string, place common.Location) int {
	at := 0
	for n, line := range strings.SplitAfter(source, "\n") {
		if n+1 == place.Line() {
			before := []rune(line)
			return at + len(string(before[:max(0, min(len(before), place.Column()))]))
		}
		at += len(line)
	}
	return at
}

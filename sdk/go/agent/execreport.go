package agent

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"mainstay.dev/sdk/api"
)

// reportMark begins a line of a command's standard output that says how far the command is.
const reportMark = "::mainstay "

// readReport reads what follows the mark, as in `progress=40 step="load rows" message=… estimate=10m`. A value with
// blanks is in double quotes, as in Go.
func readReport(text string) (p api.Progress, err error) {
	for text = strings.TrimSpace(text); text != ""; text = strings.TrimSpace(text) {
		name, rest, found := strings.Cut(text, "=")
		if !found {
			return p, fmt.Errorf("%q is not NAME=VALUE: write a value with blanks in double quotes", text)
		}
		value, after, _ := strings.Cut(rest, " ")
		if quoted, err := strconv.QuotedPrefix(rest); err == nil {
			value, _ = strconv.Unquote(quoted) // it is quoted
			after = rest[len(quoted):]
		}
		switch text = after; name {
		case "progress":
			p.Percent, err = strconv.Atoi(strings.TrimSuffix(value, "%"))
			if err != nil || p.Percent < 0 || p.Percent > 100 {
				return p, fmt.Errorf("progress must be a whole number from 0 to 100, not %q", value)
			}
		case "step":
			p.Step = value
		case "message":
			p.Message = value
		case "estimate":
			took, err := time.ParseDuration(value)
			if err != nil || took < 0 {
				return p, fmt.Errorf("estimate must be a duration like 90s or 10m, not %q", value)
			}
			p.EstimatedDuration = api.Duration(took)
		default:
			return p, fmt.Errorf("there is no %q, only progress, step, message, estimate", name)
		}
	}
	return p, nil
}

package agent

import (
	"strings"
	"unicode/utf8"
)

// cutText returns text as valid UTF-8 of at most limit bytes; it cuts the end.
func cutText(text string, limit int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}

// cutMiddle is cutText but keeps the beginning and the end, which have the most information in error texts.
func cutMiddle(text string, limit int) string {
	const mark = " […] "
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= limit {
		return text
	}
	head := cutText(text, (limit-len(mark))/2)
	from := len(text) - (limit - len(mark) - len(head))
	for from < len(text) && !utf8.RuneStart(text[from]) {
		from++
	}
	return head + mark + text[from:]
}

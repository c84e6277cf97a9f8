package api

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// nested is JSON text of a depth, half of it arrays and half objects.
func nested(depth int) []byte {
	arrays := depth / 2
	objects := depth - arrays
	return []byte(strings.Repeat("[", arrays) + strings.Repeat(`{"a":`, objects) +
		"1" + strings.Repeat("}", objects) + strings.Repeat("]", arrays))
}

func TestCheckJSONDepth(t *testing.T) {
	t.Parallel()
	brackets := `"` + strings.Repeat(`[{\"\\`, 1000) + `"`
	for name, c := range map[string]struct {
		text []byte
		want error
	}{
		"nothing":              {nil, nil},
		"flat":                 {[]byte(`{"a":[1,2,{"b":"c"}]}`), nil},
		"as deep as may be":    {nested(MaxJSONDepth), nil},
		"one level deeper":     {nested(MaxJSONDepth + 1), ErrJSONDepth},
		"deeper than a parser": {nested(20_000), ErrJSONDepth},
		"brackets in a string": {[]byte(brackets), nil},
		"many side by side":    {[]byte("[" + strings.Repeat("[[]],", 1000) + "1]"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, CheckJSONDepth(c.text, MaxJSONDepth))
		})
	}
}

func TestJSONOutline(t *testing.T) {
	t.Parallel()
	const text = `{"a\u0062" : [12, "x\"]", null ,{}], "c": {"d":true}}`
	require.True(t, json.Valid([]byte(text)))
	want := []string{`{ 0`, `" ab 1`, `[ 1`, `v 2`, `v 2`, `v 2`, `{ 2`, `} 2`, `] 1`, `" c 1`, `{ 1`, `" d 2`, `v 2`,
		`} 1`, `} 0`}
	for size := 1; size <= len(text); size++ { // however the text is cut into pieces
		var outline JSONOutline
		var got []string
		for from := 0; from < len(text); from += size {
			err := outline.Read([]byte(text[from:min(len(text), from+size)]), func(m JSONMark) error {
				words := string(m.What)
				if m.What == '"' {
					words += " " + m.Key
				}
				if m.What != 'v' {
					require.Equal(t, m.What, text[m.Offset])
				}
				got = append(got, fmt.Sprint(words, " ", m.Depth))
				return nil
			})
			require.NoError(t, err)
		}
		require.Equal(t, want, got, "in pieces of %d", size)
	}
}

// FuzzCheckJSONDepth compares with the parser that reads the text afterwards.
func FuzzCheckJSONDepth(f *testing.F) {
	for _, seed := range []string{`{"a":[1,{"b":"[{\"\\"}]}`, "[[[[]]]]", `"[`, `{"a\u0062":{}}`, "[1,2", "]]]["} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		const most = 3
		err := CheckJSONDepth([]byte(text), most)
		if !json.Valid([]byte(text)) {
			return // what reads it afterwards refuses it
		}
		depth, deepest := 0, 0
		for tokens := json.NewDecoder(strings.NewReader(text)); ; {
			token, end := tokens.Token()
			if end != nil {
				break
			}
			if mark, is := token.(json.Delim); is && strings.ContainsRune("[{", rune(mark)) {
				depth++
				deepest = max(deepest, depth)
			} else if is {
				depth--
			}
		}
		if (err != nil) != (deepest > most) {
			t.Fatalf("depth %d: %v", deepest, err)
		}
	})
}

func TestCheckJSONKeys(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"a":1,"a":2}`: "a", `{"a":{"b":[1,{"c":1,"c":2}]}}`: "a.b[1].c", `[{},{"a":1,"\u0061":2}]`: "[1].a",
		`{"a":[[1],[2,{"x":"a","x":{}}]]}`: "a[1][1].x", `{"":1,"":2}`: "",
		`{"a":1,"A":2}`: "ok", `{"a":{"a":1},"b":{"a":1}}`: "ok", `[{"a":1},{"a":1}]`: "ok", `{"a":"a","b":"a"}`: "ok",
		`"a"`: "ok", `[`: "ok", `{"` + strings.Repeat("k", 2000) + `1":1,"` + strings.Repeat("k", 2000) + `2":1}`: "ok",
		`]}`: "ok",
	} {
		err := CheckJSONKeys([]byte(text))
		if want == "ok" {
			require.NoError(t, err, text)
			continue
		}
		require.ErrorIs(t, err, ErrJSONKeyTwice, text)
		require.Equal(t, want+" is there twice: keep one of them", err.Error(), text)
	}
}

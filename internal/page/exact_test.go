package page_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The page shows and sends numbers as they came, digit for digit.
func TestThePageKeepsDigits(t *testing.T) {
	t.Parallel()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("there is no node")
	}
	module, err := filepath.Abs("static/exact.js")
	require.NoError(t, err)
	number := rapid.StringMatching(`-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?`)
	lines := []string{"9007199254740993", `{"a":[1.10,-0,12e4,1e400],"b":"\"1.10\\","c":{"1.10":12345678901234567890}}`, "[0.95,1,true,null]"}
	for seed := range 300 {
		one := number.Example(seed)
		lines = append(lines, `{"x":[`+one+`,"`+one+`",{"`+one+`":`+one+`}],"n":7}`)
	}
	const script = `
		const { decode, encode } = await import(process.argv[1]);
		let text = "";
		for await (const piece of process.stdin) text += piece;
		for (const line of text.split("\n")) {
			let again;
			try { again = encode(decode(line)); } catch { again = "refused"; }
			console.log(again);
		}`
	refused := []string{"1-2", "01", "1.", "{1.10", "12345678901234567890 1", `"a`, "NaN", `[1.10,]`}
	command := exec.CommandContext(t.Context(), node, "--input-type=module", "-e", script, module)
	command.Stdin = strings.NewReader(strings.Join(append(lines, refused...), "\n"))
	output, err := command.CombinedOutput()
	require.NoError(t, err, string(output))
	said := strings.Split(strings.TrimSpace(string(output)), "\n")
	require.Len(t, said, len(lines)+len(refused))
	for i, line := range lines {
		require.Equal(t, line, said[i])
	}
	for i, line := range refused {
		require.Equal(t, "refused", said[len(lines)+i], line)
	}
}

package document

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNumbersKeepTheirDigits(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"1.10": "1.10", "12e4": "12e4", "12345678901234567890": "12345678901234567890", "-0": "-0", "1E5": "1E5",
		"0.12345678901234567890": "0.12345678901234567890", ".12345678901234567890": "0.12345678901234567890",
		"+1.10": "1.10", "-.50": "-0.50", "5.": "5.0", "5.e3": "5.0e3", "1_000.10": "1000.10", "0x10": "16",
		"12_345_678_901_234_567_890": "12345678901234567890", "True": "true", "1.2.3": `"1.2.3"`, `"1.10"`: `"1.10"`,
	} {
		var value struct {
			X json.RawMessage `json:"x"`
		}
		_, err := Read("f.yaml", []byte("x: "+text), &value, nil)
		require.NoError(t, err, text)
		require.Equal(t, want, string(value.X), text)
	}
}

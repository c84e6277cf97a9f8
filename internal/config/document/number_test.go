package document

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/api"
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

func TestWholeNumbersInAnyForm(t *testing.T) {
	t.Parallel()
	type section struct {
		Bounded int             `json:"bounded,omitempty" minimum:"1"`
		Small   int32           `json:"small"`
		Custom  api.ServicePort `json:"custom"`
		Any     json.RawMessage `json:"any"`
	}
	for text, want := range map[string]string{
		"bounded: 2.0\nsmall: 2e0\ncustom: 80.0\nany: 2.0": "",
		"bounded: 2.5": "f.yaml:1:10: bounded: must be a whole number at least 1",
		"bounded: 0.0": "f.yaml:1:10: bounded: must be at least 1; leave it out for the default",
		"small: 2.5":   "f.yaml:1:8: small: must be a whole number",
		"custom: 80.5": "f.yaml:1:9: custom: must be a port, from 1 to 65535",
	} {
		var value section
		_, err := Read("f.yaml", []byte(text), &value, nil)
		if want != "" {
			require.EqualError(t, err, want)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, section{2, 2, "80", json.RawMessage("2.0")}, value)
	}
}

package api

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParseDuration(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"30s": 30 * time.Second, "1m30s": 90 * time.Second, "00:00:30": 30 * time.Second, "01:00:00": time.Hour,
		"7.00:00:00": 7 * 24 * time.Hour, "00:05": 5 * time.Minute, "00:00:01.5": 1500 * time.Millisecond,
		"-00:00:10": -10 * time.Second,
		"7d":        7 * 24 * time.Hour, "1d12h": 36 * time.Hour, "1.5d": 36 * time.Hour, "-1d": -24 * time.Hour, "0": 0,
		"9999999h": math.MaxInt64, "99999999999999999999999d": math.MaxInt64, "-9999999h": -math.MaxInt64,
	} {
		got, err := ParseDuration(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "x", "30", "d", "1d2", "1w", "--1s", "1.2.3d", "s1", "1:2:3:4", "24:00:00", "00:60", "00:00:60", "x.00:00:00", "00:00:-1",
		"00:00:1e9"} {
		_, err := ParseDuration(text)
		require.Error(t, err, text)
	}
}

func TestDurationInJSON(t *testing.T) {
	t.Parallel()
	var got struct{ D Duration }
	require.NoError(t, json.Unmarshal([]byte(`{"D":"00:01:00"}`), &got))
	text, err := json.Marshal(got)
	require.NoError(t, err)
	require.JSONEq(t, `{"D":"1m0s"}`, string(text))
}

func FuzzParseDuration(f *testing.F) {
	f.Add("7.00:00:00")
	f.Add("1m30s")
	f.Fuzz(func(t *testing.T, text string) {
		d, err := ParseDuration(text)
		if err != nil {
			return
		}
		again, err := ParseDuration(Duration(d).String())
		require.NoError(t, err)
		require.Equal(t, d, again)
	})
}

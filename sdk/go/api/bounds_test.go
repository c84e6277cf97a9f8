package api

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type boundedFields struct {
	Count    int      `json:"count,omitempty" minimum:"1" maximum:"100"`
	Needed   int      `json:"needed" minimum:"1"`
	Canary   int      `json:"canary,omitempty" minimum:"0" maximum:"50"`
	Share    float64  `json:"share,omitempty" exclusiveMinimum:"0" maximum:"1"`
	Timeout  Duration `json:"timeout,omitempty" least:"1s" most:"720h"`
	Grace    Duration `json:"grace,omitempty" least:"0s" most:"24h"`
	Untagged Duration `json:"untagged,omitempty"`
	Inner    *struct {
		Attempts *int `json:"attempts,omitempty" minimum:"0" maximum:"50"`
		Times    int  `json:"times,omitempty" minimum:"1"`
	} `json:"inner,omitempty"`
	List []DeviceDemand `json:"list,omitempty"`
}

func TestWhatSomebodyWritesIsHeldToBounds(t *testing.T) {
	t.Parallel()
	no := ErrDuration
	for text, want := range map[string]string{
		`{"count":1,"canary":0,"grace":"0s","inner":{"attempts":0},"timeout":"30d","untagged":"1ns"}`: "",
		`{"count":0}`:            "count must be between 1 and 100; leave it out for the default",
		`{"count":-1}`:           "count must be between 1 and 100; leave it out for the default",
		`{"count":101}`:          "count must be between 1 and 100",
		`{"count":1e400}`:        "count must be between 1 and 100",
		`{"count":1.5}`:          "count must be a whole number between 1 and 100",
		`{"count":"3"}`:          "count must be a whole number between 1 and 100",
		`{"count":null}`:         "count must be a whole number between 1 and 100",
		`{"needed":0}`:           "needed must be at least 1",
		`{"canary":-1}`:          "canary must be between 0 and 50; leave it out for the default",
		`{"share":0}`:            "share must be above 0 and at most 1; leave it out for the default",
		`{"share":"half"}`:       "share must be a number above 0 and at most 1",
		`{"timeout":"0s"}`:       "timeout must be between 1s and 720h; leave it out for the default",
		`{"timeout":"-5s"}`:      "timeout must be between 1s and 720h; leave it out for the default",
		`{"timeout":"9999999h"}`: "timeout must be between 1s and 720h",
		`{"timeout":30}`:         "timeout " + no.Error(),
		`{"timeout":"30"}`:       "timeout " + no.Error(),
		`{"untagged":"0"}`:       "untagged must be above 0s; leave it out for the default",
		`{"inner":{"times":0}}`:  "inner.times must be at least 1; leave it out for the default",
		`{"list":[{"kind":"gpu"},{"kind":"gpu","count":0}]}`: "list[1].count must be between 1 and 64; leave it out for the default",
		`[1]`: "", // of another form: its reader refuses it
	} {
		err := CheckGiven(json.RawMessage(text), reflect.TypeFor[boundedFields]())
		if want == "" {
			require.NoError(t, err, text)
			continue
		}
		require.EqualError(t, err, want, text)
	}
}

// TestZeroIsLeftOutOnceItIsRead: what was read before, such as a history, holds no explicit zero.
func TestZeroIsLeftOutOnceItIsRead(t *testing.T) {
	t.Parallel()
	v := boundedFields{Needed: 1}
	require.NoError(t, Within("", v))
	v.Timeout = Duration(time.Millisecond)
	require.EqualError(t, Within("job.", &v), "job.timeout must be between 1s and 720h")
	v.Timeout, v.Count = 0, 101
	require.EqualError(t, Within("", v), "count must be between 1 and 100")
	v.Count, v.Inner = 0, &struct {
		Attempts *int `json:"attempts,omitempty" minimum:"0" maximum:"50"`
		Times    int  `json:"times,omitempty" minimum:"1"`
	}{Attempts: new(-1)}
	require.EqualError(t, Within("", v), "inner.attempts must be between 0 and 50")
}

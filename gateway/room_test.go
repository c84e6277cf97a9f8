package gateway_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/protocol"
)

// TestSchedulesAndJobsHaveABound makes one more of each while there are so many, of the tenant and of all.
func TestSchedulesAndJobsHaveABound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		tenant  string
		own, of int64
		refused string // a word of the answer; empty: there is room
	}{
		"a tenant has room":              {"acme", rest.MaxTenantKept - 1, rest.MaxTenantKept - 1, ""},
		"a tenant has its share":         {"acme", rest.MaxTenantKept, rest.MaxTenantKept, "the tenant has"},
		"what is free is for others too": {"acme", 2, rest.MaxKept - 2, "the tenant has"},
		"the next tenant has room":       {"acme", 1, rest.MaxKept - 2, ""},
		"no tenant has a larger share":   {"", 0, rest.MaxKept - 1, ""},
		"there are as many as may be":    {"", 0, rest.MaxKept, "there are"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, h := served(t)
			f.count = func(query string) int64 {
				if strings.Contains(query, contract.Equals(contract.AttrTenant.GetName(), "acme")) {
					return c.own
				}
				return c.of
			}
			schedule, definition := nightly, nightlyJob+"tenant: acme\n"
			if c.tenant == "" {
				schedule, definition = strings.Replace(nightly, `"tenant":"acme",`, "", 1), nightlyJob
			}
			for method, request := range map[string][2]string{
				http.MethodPost: {schedulesPath, schedule},
				http.MethodPut:  {jobsPath + "/nightly", definition},
			} {
				w := do(h, method, request[0], request[1])
				if c.refused == "" {
					require.Equal(t, http.StatusCreated, w.Code, w.Body)
					continue
				}
				detail := problem(t, w, http.StatusConflict, protocol.CodeConflict).Detail
				require.True(t, strings.HasPrefix(detail, c.refused), detail)
				require.Contains(t, detail, "delete")
			}
		})
	}
}

func TestTheBoundOfJobsIsNoneForNewVersions(t *testing.T) {
	t.Parallel()
	f, h := served(t)
	require.Equal(t, http.StatusCreated, do(h, http.MethodPut, jobsPath+"/nightly", nightlyJob).Code)
	f.count = func(string) int64 { return rest.MaxKept }
	require.Equal(t, http.StatusOK, do(h, http.MethodPut, jobsPath+"/nightly",
		strings.Replace(nightlyJob, "type: merge}", "type: join}", 1)).Code)
}

func TestAnOlderTemporalCountsNoSchedules(t *testing.T) {
	t.Parallel()
	f, h := served(t)
	f.schedules.noCount = serviceerror.NewUnimplemented("canary: unknown method CountSchedules")
	require.Equal(t, http.StatusCreated, do(h, http.MethodPost, schedulesPath, nightly).Code)
}

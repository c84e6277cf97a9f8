package gateway_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"

	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/protocol"
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

func TestSchedulesOfJobsCountAmongSchedules(t *testing.T) {
	t.Parallel()
	for more, status := range map[int64]int{8: http.StatusCreated, 7: http.StatusConflict} {
		f, h := served(t)
		f.count = func(query string) int64 {
			if strings.Contains(query, contract.AttrJob.GetName()+" IS NOT NULL") {
				return rest.MaxTenantKept - more
			}
			return 0
		}
		w := do(h, http.MethodPut, jobsPath+"/often", often("1h", 8)+"tenant: acme\n")
		require.Equal(t, status, w.Code, w.Body)
	}
}

// often is a job with n schedules of an interval.
func often(interval string, n int) string {
	return "job: often\ncluster: default\nsteps: {a: {task: {type: x}}}\non: [" +
		strings.Repeat("{schedule: {interval: "+interval+"}}, ", n) + "]\n"
}

// TestSchedulesStartSoMuchTogether sends requests one after the other. Jobs' schedules are not made here, as if they
// were not yet: those that were admitted count.
func TestSchedulesStartSoMuchTogether(t *testing.T) {
	t.Parallel()
	type request struct{ method, path, body string }
	schedule := func(tenant, name, when string) request {
		return request{http.MethodPost, schedulesPath, `{"name":"` + name + `",` + when +
			`,"task":{"type":"x","cluster":"default","tenant":"` + tenant + `"}}`}
	}
	replaced := func(r request, name string) request { return request{http.MethodPut, r.path + "/" + name, r.body} }
	job := func(tenant, name, interval string) request {
		return request{http.MethodPut, jobsPath + "/" + name, strings.Replace(often(interval, 8), "often", name, 1) +
			"tenant: " + tenant + "\n"}
	}
	f, h := served(t)
	send := func(h http.Handler, r request, refused string) {
		w := do(h, r.method, r.path, r.body)
		if refused == "" {
			require.Less(t, w.Code, 300, "%s %s", r, w.Body)
			return
		}
		require.Contains(t, problem(t, w, http.StatusConflict, protocol.CodeConflict).Detail, refused)
	}
	for _, c := range []struct {
		request request
		refused string // words of the answer; empty: it is not
	}{
		{job("acme", "tick", "1s"), ""},
		{job("acme", "tock", "1s"), "of the tenant, those of jobs included, may start something 600 times a minute " +
			"together: these would 480 times, and the others do 480 times"},
		{schedule("acme", "slow", `"cron":"* * * * *"`), ""},
		{schedule("acme", "fast", `"interval":"1s"`), ""},
		{schedule("acme", "faster", `"interval":"1s"`), "these would 60 times, and the others do 541 times"},
		{schedule("acme", "faster", `"interval":"2s"`), ""},
		{replaced(schedule("acme", "acme:faster", `"interval":"1s"`), "acme:faster"), "these would 60 times"},
		{job("acme", "tick", "1s"), ""},                      // as it is
		{job("acme", "tick", "20s"), ""},                     // less
		{job("acme", "tock", "2s"), "these would 240 times"}, // until it is certain that tick starts less
		{schedule("beta", "fast", `"interval":"1s"`), ""},
		{job("beta", "tick", "1s"), ""},
	} {
		send(h, c.request, c.refused)
	}

	listed := f.schedules.byID[contract.ScheduleID("acme:fast")]
	for n := range 6 {
		f.schedules.byID[contract.JobScheduleID("acme:tick", n)] = listed
	}
	other := serve(t, f) // knows what lists show
	send(other, job("acme", "tock", "1s"), "the others do 451 times")
	send(other, job("acme", "tick", "1s"), "")
}

package process

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// foreigner is a request that a web page of another site causes in the browser of a person who runs `dev`.
type foreigner struct {
	method, path, kind string
	host               string // for the header Host; %s is the port. Empty: the address itself
	headers            map[string]string
}

const newWorkflow = "/api/v1/namespaces/default/workflows/"

var (
	crossSite = map[string]string{"Origin": "https://attacker.example", "Sec-Fetch-Site": "cross-site"}
	// sameOrigin is a page whose host name leads to this machine by now (DNS rebinding). It can read and send the UI's
	// token.
	sameOrigin = map[string]string{
		"Origin": "http://attacker.example:%s", "Sec-Fetch-Site": "same-origin",
		"Cookie": "_csrf=0123456789abcdef0123456789abcdef", "X-CSRF-Token": "0123456789abcdef0123456789abcdef",
	}
	foreigners = map[string]foreigner{
		"cross-site-start":     {http.MethodPost, newWorkflow, "text/plain", "", crossSite},
		"foreign-host-start":   {http.MethodPost, newWorkflow, "text/plain", "attacker.example", crossSite},
		"rebound-start":        {http.MethodPost, newWorkflow, "application/json", "attacker.example:%s", sameOrigin},
		"rebound-settings":     {http.MethodGet, "/api/v1/settings", "", "attacker.example:%s", sameOrigin},
		"rebound-namespaces":   {http.MethodGet, "/api/v1/namespaces", "", "attacker.example:%s", sameOrigin},
		"rebound-page":         {http.MethodGet, "/", "", "attacker.example:%s", sameOrigin},
		"rebound-agents":       {http.MethodGet, "/api/v1/agents", "", "attacker.example:%s", sameOrigin},
		"rebound-dns-settings": {http.MethodGet, "/api/v1/settings", "", "attacker.example.:%s", nil},
	}
)

// TestNoPortOfDevIsForWebPages connects to every port that `dev` and its agents listen on, as a page of another site
// would.
func TestNoPortOfDevIsForWebPages(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root sees which ports a process has that hides itself")
	}
	p, report := startDev(t, t.TempDir(), "127.0.0.1:0", "--ui", "127.0.0.1:0")
	addresses := listening(t, p.pid())
	for _, known := range []string{report.URL, report.UIURL, report.Temporal} {
		require.Contains(t, addresses, strings.TrimPrefix(known, "http://"), "the search must find what is known")
	}
	temporal, err := client.Dial(client.Options{HostPort: report.Temporal})
	require.NoError(t, err)
	defer temporal.Close()
	for _, address := range addresses {
		host, port, err := net.SplitHostPort(address)
		require.NoError(t, err)
		require.True(t, net.ParseIP(host).IsLoopback(), "others can reach %s", address)
		for name, f := range foreigners {
			id := name + "-" + port
			status := f.ask(t, address, port, id)
			assert.False(t, status >= 200 && status < 300, "%s: %s answers %d", name, address, status)
			_, err := temporal.DescribeWorkflowExecution(t.Context(), id, "")
			var notFound *serviceerror.NotFound
			assert.ErrorAs(t, err, &notFound, "%s on %s started a workflow", name, address)
		}
	}
	own := foreigner{http.MethodPost, newWorkflow, "application/json", "", map[string]string{
		"Origin": report.UIURL, "Sec-Fetch-Site": "same-origin",
		"Cookie": sameOrigin["Cookie"], "X-CSRF-Token": sameOrigin["X-CSRF-Token"],
	}}
	address := strings.TrimPrefix(report.UIURL, "http://")
	require.Equal(t, http.StatusOK, own.ask(t, address, "", "own"), "the Web UI's own page can start a workflow")
}

// TestNoPortOfSecuredDevIsForLocalUsers calls each of Temporal's services on every port that a secured `dev` and its
// agents listen on, as every user of the machine can: in plain gRPC and in TLS, without the key and with made-up ones.
func TestNoPortOfSecuredDevIsForLocalUsers(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root sees which ports a process has that hides itself")
	}
	admin := strings.Repeat("0123456789abcdef", 4)
	p, report := startDevIn(t, []string{"MAINSTAY_ADMIN_TOKEN=" + admin}, t.TempDir(), "127.0.0.1:0",
		"--ui", "127.0.0.1:0", "--allow-exec")
	info, err := os.Stat(report.KeyFile)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
	key, err := os.ReadFile(report.KeyFile)
	require.NoError(t, err)
	addresses := listening(t, p.pid())
	require.Contains(t, addresses, report.Temporal)
	require.Greater(t, len(addresses), 5, "the API, the Web UI, and Temporal's services")
	transports := map[string]credentials.TransportCredentials{
		"plain": insecure.NewCredentials(),
		"TLS":   credentials.NewTLS(&tls.Config{InsecureSkipVerify: true}),
	}
	for _, address := range addresses {
		for name, transport := range transports {
			for _, header := range []string{"", "Bearer ", "Bearer " + admin, strings.TrimSpace(string(key))} {
				for method, code := range callTemporal(t, address, transport, header) {
					assert.Contains(t, refusals, code, "%s on %s, %s", method, address, name)
				}
			}
		}
	}
	answers := callTemporal(t, report.Temporal, transports["plain"], "Bearer "+strings.TrimSpace(string(key)))
	require.Equal(t, codes.OK, answers["/temporal.api.workflowservice.v1.WorkflowService/ListNamespaces"])
}

// refusals are the codes of ports where the method is not served, or not to everybody.
var refusals = []codes.Code{codes.Unavailable, codes.PermissionDenied, codes.Unimplemented}

// callTemporal calls methods of Temporal's services without arguments, and returns what came of each.
func callTemporal(
	t *testing.T, address string, transport credentials.TransportCredentials, header string,
) map[string]codes.Code {
	t.Helper()
	c, err := grpc.NewClient(address, grpc.WithTransportCredentials(transport))
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if header != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", header)
	}
	answers := map[string]codes.Code{}
	for _, method := range []string{
		"/temporal.api.workflowservice.v1.WorkflowService/ListNamespaces",
		"/temporal.api.operatorservice.v1.OperatorService/ListClusters",
		"/temporal.server.api.adminservice.v1.AdminService/DescribeCluster",
		"/temporal.server.api.historyservice.v1.HistoryService/DescribeHistoryHost",
		"/temporal.server.api.matchingservice.v1.MatchingService/DescribeTaskQueue",
		"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
	} {
		err := c.Invoke(ctx, method, &emptypb.Empty{}, &emptypb.Empty{})
		answers[method] = status.Code(err)
		if err != nil && strings.Contains(err.Error(), "Request unauthorized") {
			answers[method] = codes.PermissionDenied // Temporal leaves the code of streams out
		}
	}
	return answers
}

// ask sends the request and returns the answer's status; 0 when there is no answer in HTTP, as of a port that speaks
// gRPC.
func (f foreigner) ask(t *testing.T, address, port, workflow string) int {
	t.Helper()
	path, body := f.path, ""
	if f.method == http.MethodPost {
		path += workflow
		body = `{"workflowType":{"name":"Foreign"},"taskQueue":{"name":"nobody"},"requestId":"` + workflow + `"}`
	}
	request, err := http.NewRequestWithContext(t.Context(), f.method, "http://"+address+path, strings.NewReader(body))
	require.NoError(t, err)
	request.Host = strings.ReplaceAll(f.host, "%s", port)
	request.Header.Set("Content-Type", f.kind)
	for name, value := range f.headers {
		request.Header.Set(name, strings.ReplaceAll(value, "%s", port))
	}
	c := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := c.Do(request)
	if err != nil {
		require.NotErrorIs(t, err, context.DeadlineExceeded, "%s does not answer at all", address)
		return 0
	}
	_, _ = io.Copy(io.Discard, response.Body)
	require.NoError(t, response.Body.Close())
	return response.StatusCode
}

// listening lists the TCP addresses that a process and all its descendants listen on.
func listening(t *testing.T, pid int) []string {
	t.Helper()
	sockets := map[string]bool{} // by inode
	for _, p := range withDescendants(t, pid) {
		links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", p))
		require.NoError(t, err)
		for _, link := range links {
			target, _ := os.Readlink(link) // some are closed meanwhile
			if inode, ok := strings.CutPrefix(target, "socket:["); ok {
				sockets[strings.TrimSuffix(inode, "]")] = true
			}
		}
	}
	const listen = "0A"
	var addresses []string
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		file, err := os.Open(table)
		require.NoError(t, err)
		for lines := bufio.NewScanner(file); lines.Scan(); {
			if f := strings.Fields(lines.Text()); len(f) > 9 && f[3] == listen && sockets[f[9]] {
				addresses = append(addresses, addressOf(t, f[1]))
			}
		}
		require.NoError(t, file.Close())
	}
	return addresses
}

// addressOf reads an address as the kernel writes it: hex, each four bytes of the IP in little-endian order.
func addressOf(t *testing.T, text string) string {
	t.Helper()
	host, port, _ := strings.Cut(text, ":")
	ip, err := hex.DecodeString(host)
	require.NoError(t, err)
	for word := range slices.Chunk(ip, 4) {
		slices.Reverse(word)
	}
	number, err := strconv.ParseUint(port, 16, 16)
	require.NoError(t, err)
	return net.JoinHostPort(net.IP(ip).String(), strconv.FormatUint(number, 10))
}

// withDescendants is a process and its descendants.
func withDescendants(t *testing.T, pid int) []int {
	t.Helper()
	all := []int{pid}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	require.NoError(t, err)
	parents := map[int]int{}
	for _, path := range stats {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		child, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		_, after, _ := strings.Cut(string(data), ") ")
		if f := strings.Fields(after); len(f) > 1 {
			parents[child], _ = strconv.Atoi(f[1])
		}
	}
	for i := 0; i < len(all); i++ {
		for child, parent := range parents {
			if parent == all[i] {
				all = append(all, child)
			}
		}
	}
	return all
}

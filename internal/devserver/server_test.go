package devserver

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/server/common/dynamicconfig"

	"mainstay.dev/mainstay/internal/contract"
)

func start(t *testing.T, o Options) (*Server, client.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	s, err := Start(ctx, o)
	require.NoError(t, err)
	t.Cleanup(s.Stop)
	options := s.ClientOptions()
	options.Logger = silent{}
	c, err := client.DialContext(ctx, options)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return s, c
}

func TestMemoryHasSearchAttributesAndUI(t *testing.T) {
	t.Parallel()
	s, c := start(t, Options{})
	found, err := c.OperatorService().ListSearchAttributes(t.Context(),
		&operatorservice.ListSearchAttributesRequest{Namespace: s.Namespace()})
	require.NoError(t, err)
	for name, kind := range contract.SearchAttributes() {
		require.Equal(t, kind, found.GetCustomAttributes()[name], name)
	}
	ui, err := s.UI()
	require.NoError(t, err)
	pages := map[string]string{"/namespaces/default/workflows": "<html", "/api/v1/namespaces": `"namespaceInfo"`}
	for path, text := range pages {
		w := httptest.NewRecorder()
		ui.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		require.Equal(t, http.StatusOK, w.Code, path)
		require.Contains(t, w.Body.String(), text)
	}
	s.Stop()
	s.Stop()
}

// TestKeyOpensTemporal asks with and without the key, also through the Web UI, which has it.
func TestKeyOpensTemporal(t *testing.T) {
	t.Parallel()
	s, c := start(t, Options{Key: "a key"})
	run, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: "kept", TaskQueue: "nobody"}, "Kept")
	require.NoError(t, err)
	for name, credentials := range map[string]client.Credentials{
		"no key": nil, "another key": client.NewAPIKeyStaticCredentials("another key"),
	} {
		o := client.Options{HostPort: s.Address(), Credentials: credentials, Logger: silent{}}
		o.ConnectionOptions.TLSDisabled = true
		stranger, err := client.NewLazyClient(o)
		require.NoError(t, err)
		defer stranger.Close()
		_, err = stranger.DescribeWorkflowExecution(t.Context(), "kept", "")
		var denied *serviceerror.PermissionDenied
		require.ErrorAs(t, err, &denied, name)
	}
	o := client.Options{HostPort: s.Address(), Credentials: client.NewAPIKeyStaticCredentials("a key"), Logger: silent{}}
	o.ConnectionOptions.TLSDisabled = true
	outside, err := client.DialContext(t.Context(), o)
	require.NoError(t, err)
	defer outside.Close()
	_, err = outside.DescribeWorkflowExecution(t.Context(), "kept", "")
	require.NoError(t, err)
	ui, err := s.UI()
	require.NoError(t, err)
	workflow := "/api/v1/namespaces/default/workflows/kept"
	for path, text := range map[string]string{
		"/api/v1/namespaces": `"namespaceInfo"`,
		workflow:             `"kept"`,
		workflow + "/run/" + run.GetRunID() + "/history.json": "WorkflowExecutionStarted",
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		r.Header.Set("Authorization", "Bearer of the REST API")
		ui.ServeHTTP(w, r)
		require.Equal(t, http.StatusOK, w.Code, path)
		require.Contains(t, w.Body.String(), text)
	}
}

// TestStrangerIsRefusedUnread sends a request without the key whose body never ends: what is kept until it ends would
// be the stranger's to choose.
func TestStrangerIsRefusedUnread(t *testing.T) {
	t.Parallel()
	s, _ := start(t, Options{Key: "a key"})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	body, more := io.Pipe()
	defer more.Close()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost,
		"http://"+s.Address()+"/temporal.api.workflowservice.v1.WorkflowService/StartWorkflowExecution", body)
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/grpc")
	stranger := &http.Transport{Protocols: new(http.Protocols)}
	stranger.Protocols.SetUnencryptedHTTP2(true)
	answer, err := stranger.RoundTrip(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body) // nothing; the trailers follow
	require.NoError(t, err)
	require.Equal(t, "7", answer.Trailer.Get("Grpc-Status"))
}

func TestFileKeepsWorkflows(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	s, c := start(t, Options{DataDir: dir})
	_, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: "kept", TaskQueue: "nobody"}, "Kept")
	require.NoError(t, err)

	t.Log("a second process is refused")
	_, err = Start(t.Context(), Options{DataDir: dir})
	require.ErrorIs(t, err, ErrDataDirInUse)
	require.ErrorContains(t, err, "--data-dir")

	c.Close()
	s.Stop()
	_, again := start(t, Options{DataDir: dir, Durability: PowerLoss})
	_, err = again.DescribeWorkflowExecution(t.Context(), "kept", "")
	require.NoError(t, err)
}

func TestAnotherVersionsDataIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, versionFile), []byte("0.9.0\n"), 0o600))
	_, err := Start(t.Context(), Options{DataDir: dir})
	require.ErrorContains(t, err, "was written by Temporal 0.9.0")
	require.NoFileExists(t, filepath.Join(dir, databaseFile))

	t.Log("the refusal gives the directory free")
	require.NoError(t, os.Remove(filepath.Join(dir, versionFile)))
	start(t, Options{DataDir: dir})
}

// Data whose open workflows this program cannot go on with is refused, also when nothing says who wrote it, unless its
// owner wants it so; that is asked each time.
func TestDataOfOldWorkflowsIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, c := start(t, Options{DataDir: dir})
	c.Close()
	s.Stop()
	marker := filepath.Join(dir, workflowsFile)
	require.FileExists(t, marker)
	for name, record := range map[string]func() error{
		"another version": func() error { return os.WriteFile(marker, []byte("0\n"), 0o600) },
		"none recorded":   func() error { return os.Remove(marker) },
	} {
		require.NoError(t, record(), name)
		_, err := Start(t.Context(), Options{DataDir: dir})
		require.ErrorIs(t, err, ErrOldData, name)
		require.ErrorContains(t, err, "--data-dir")
		require.ErrorContains(t, err, "--accept-old-data")
	}
	s, c = start(t, Options{DataDir: dir, AcceptOldData: true})
	c.Close()
	s.Stop()
	_, err := Start(t.Context(), Options{DataDir: dir})
	require.ErrorIs(t, err, ErrOldData, "it is still old")
}

// TestDatabaseIsItsOwnersAlone has a data directory that is open to others, new and with a database that is, too.
func TestDatabaseIsItsOwnersAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o755))
	database := filepath.Join(dir, databaseFile)
	for _, state := range []string{"new", "open to others"} {
		s, c := start(t, Options{DataDir: dir})
		for _, suffix := range []string{"", "-wal", "-shm"} {
			info, err := os.Stat(database + suffix)
			require.NoError(t, err, state)
			require.Equal(t, os.FileMode(0o600), info.Mode(), "%s%s, %s", databaseFile, suffix, state)
		}
		c.Close()
		s.Stop()
		require.NoError(t, os.Chmod(database, 0o644))
	}
}

func TestHalfMadeDatabaseIsMadeAnew(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, databaseFile+".new"), []byte("half"), 0o600))
	start(t, Options{DataDir: dir})
}

func TestBusyPort(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	_, err = Start(t.Context(), Options{Port: l.Addr().(*net.TCPAddr).Port})
	var busy *PortInUseError
	require.ErrorAs(t, err, &busy)
	require.Equal(t, l.Addr().String(), busy.Address)
	require.ErrorContains(t, err, "in use")
	require.ErrorContains(t, err, "--temporal")
}

func TestUnknownDurability(t *testing.T) {
	t.Parallel()
	_, err := Start(t.Context(), Options{Durability: "maybe"})
	require.ErrorContains(t, err, "process, power or none")
}

// TestDynamicConfigForOtherServers holds the file for Temporal's own server to what this server knows: every key is one
// of its settings, with a value of the right kind.
func TestDynamicConfigForOtherServers(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../deploy/temporal/dynamicconfig.yaml")
	require.NoError(t, err)
	loaded := dynamicconfig.LoadYamlFile(text)
	require.Empty(t, loaded.Errors)
	require.Empty(t, loaded.Warnings)
	require.Contains(t, string(text), "matching.enableFairness")
}

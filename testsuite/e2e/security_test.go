package e2e

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/config/pki"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/guard"
	"mainstay.dev/mainstay/internal/hub"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

const firstAdmin = "the-first-admin-token-of-these-tests"

// secured is a node that asks who one is, with one cluster and an agent in it.
type secured struct {
	*plane.Node
	cluster string
	audit   string // file
	via     *http.Client
}

func newSecured(t *testing.T, o plane.NodeOptions, certificates ...guard.Certificate) *secured {
	t.Helper()
	s := &secured{audit: filepath.Join(t.TempDir(), "audit.jsonl"), via: http.DefaultClient}
	audit, err := guard.OpenAudit(s.audit, zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, audit.Close()) })
	o.Gate = guard.New(guard.Options{
		Tokens:       guard.FromTemporal(plane.Temporal(t), plane.Key, zap.NewNop()),
		EndSession:   guard.SessionEnder(plane.Temporal(t)),
		AdminToken:   firstAdmin,
		SessionKey:   plane.Key,
		Certificates: certificates,
		Rate:         guard.DefaultRate, Burst: guard.DefaultBurst, Audit: audit, Sessions: hub.SessionsOf(plane.Key),
	})
	s.Node = plane.NewNode(t, o)
	s.cluster = s.EnsureCluster(t, api.ClusterConfig{})
	return s
}

// ask calls the API with a token.
func (s *secured) ask(t *testing.T, token, method, path string, body, out any) (int, protocol.Problem) {
	t.Helper()
	return callAs(t, s.via, token, method, s.URL+"/api/v1/agents"+path, body, out)
}

// revoke revokes a token, as the first admin. It reports false when the answer to that came too late, so that it was
// asked for again.
func (s *secured) revoke(t *testing.T, token string) (revoked api.RevokedToken, told bool) {
	t.Helper()
	status, p := s.ask(t, firstAdmin, http.MethodDelete, "/tokens/"+token, nil, &revoked)
	if p.Code == protocol.CodeUnknownToken {
		return revoked, false
	}
	require.Equal(t, http.StatusOK, status, "%+v", p)
	return revoked, true
}

// token makes one, as the first admin. All tests share the tokens, whose names are unique.
func (s *secured) token(t *testing.T, request api.TokenRequest) api.NewToken {
	t.Helper()
	request.Name = plane.UniqueID(request.Name)
	var token api.NewToken
	status, p := s.ask(t, firstAdmin, http.MethodPost, "/tokens", request, &token)
	require.Equal(t, http.StatusCreated, status, "%+v", p)
	return token
}

// TestWhoWritesToTemporalMakesNoToken hands records of admins to the workflow that keeps tokens, past the gateway: one
// without a seal, one sealed with another key, and one that was a viewer's.
func TestWhoWritesToTemporalMakesNoToken(t *testing.T) {
	t.Parallel()
	s := newSecured(t, plane.NodeOptions{})
	viewer := s.token(t, api.TokenRequest{Name: "looker", Role: api.RoleViewer})
	records, err := (store.Store{Client: plane.Temporal(t)}).Tokens(t.Context())
	require.NoError(t, err)
	promoted := records[slices.IndexFunc(records, func(r access.Record) bool { return r.ID == viewer.ID })]
	for name, change := range map[string]func(*access.Record){
		"no seal":        func(r *access.Record) { r.Seal = "" },
		"another key":    func(r *access.Record) { r.Seal = r.SealWith([]byte("another key")) },
		"no key":         func(r *access.Record) { r.Seal = r.SealWith(nil) },
		"another's seal": func(r *access.Record) { r.Seal = promoted.Seal },
	} {
		var random [access.RandomBytes]byte
		_, _ = rand.Read(random[:])
		secret, record := access.Mint(api.TokenAPI, random)
		record.Name, record.Role, record.CreatedAt = "evil", api.RoleAdmin, time.Now().UTC()
		change(&record)
		_, err := store.Update(t.Context(), store.Store{Client: plane.Temporal(t)}, contract.CreateTokenUpdate,
			contract.AccessWorkflowID, record)
		require.NoError(t, err, name)
		status, p := s.ask(t, secret, http.MethodGet, "/tokens", nil, nil)
		require.Equal(t, http.StatusUnauthorized, status, name)
		require.Equal(t, protocol.CodeUnauthorized, p.Code, name)
		_, err = store.Update(t.Context(), store.Store{Client: plane.Temporal(t)}, contract.RevokeTokenUpdate,
			contract.AccessWorkflowID, contract.RevokeTokenRequest{ID: record.ID})
		require.NoError(t, err, name)
	}
}

// TestTwoTenants has two tenants share a cluster: each is served, and neither sees or touches what is the other's.
func TestTwoTenants(t *testing.T) {
	t.Parallel()
	s := newSecured(t, plane.NodeOptions{})
	join := s.token(t, api.TokenRequest{Name: "agents", Kind: api.TokenJoin, Cluster: s.cluster})
	startAgent(t, agent.Options{HubURLs: []string{s.URL}, Cluster: s.cluster, ID: plane.UniqueID("a"), Slots: 4,
		JoinToken: join.Secret}, map[string]agent.Handler{"echo": echo})
	acme := s.token(t, api.TokenRequest{Name: "acme", Role: api.RoleOperator, Tenant: "acme"}).Secret
	beta := s.token(t, api.TokenRequest{Name: "beta", Role: api.RoleOperator, Tenant: "beta"}).Secret
	ids := map[string]string{}
	for _, token := range []string{acme, beta} {
		var done taskDone
		status, p := s.ask(t, token, http.MethodPost, "/tasks",
			map[string]any{"type": "echo", "cluster": s.cluster, "payload": 7, "idempotency_key": "order-1"}, &done)
		require.Equal(t, http.StatusAccepted, status, "%+v", p)
		ids[token] = done.ID
		status, _ = s.ask(t, token, http.MethodGet, "/tasks/"+done.ID+"?wait=20s", nil, &done)
		require.Equal(t, http.StatusOK, status)
		require.Equal(t, api.TaskCompleted, done.Status, done.Why)
	}
	require.NotEqual(t, ids[acme], ids[beta])
	for own, other := range map[string]string{acme: beta, beta: acme} {
		for _, path := range []string{"/tasks/" + ids[other], "/tasks/" + ids[other] + "/log"} {
			status, p := s.ask(t, own, http.MethodGet, path, nil, nil)
			require.Equal(t, http.StatusNotFound, status)
			require.Equal(t, protocol.CodeUnknownTask, p.Code)
		}
		require.Eventually(t, func() bool {
			var list struct{ Tasks []api.Task }
			status, _ := s.ask(t, own, http.MethodGet, "/tasks?cluster="+s.cluster, nil, &list)
			return status == http.StatusOK && len(list.Tasks) == 1 && list.Tasks[0].ID == ids[own]
		}, patience, 100*time.Millisecond, "its own, and nothing else")
		status, _ := s.ask(t, own, http.MethodGet, "", nil, nil)
		require.Equal(t, http.StatusForbidden, status, "the fleet is everybody's")
	}
}

// TestABulkOperationDoesNotReachAnotherTenant has one name the other's task by its id.
func TestABulkOperationDoesNotReachAnotherTenant(t *testing.T) {
	t.Parallel()
	s := newSecured(t, plane.NodeOptions{})
	acme := s.token(t, api.TokenRequest{Name: "acme", Role: api.RoleOperator, Tenant: "acme"}).Secret
	beta := s.token(t, api.TokenRequest{Name: "beta", Role: api.RoleOperator, Tenant: "beta"}).Secret
	submit := func(token string) string {
		var made taskDone
		status, p := s.ask(t, token, http.MethodPost, "/tasks", map[string]any{"type": "echo", "cluster": s.cluster},
			&made)
		require.Equal(t, http.StatusAccepted, status, "%+v", p)
		return made.ID
	}
	mine, theirs := submit(acme), submit(beta)
	var bulk api.Bulk
	status, p := s.ask(t, acme, http.MethodPost, "/tasks/bulk",
		map[string]any{"action": "cancel", "filter": map[string]any{"ids": []string{mine, theirs}},
			"reason": "test"}, &bulk)
	require.Equal(t, http.StatusAccepted, status, "%+v", p)
	status, _ = s.ask(t, beta, http.MethodGet, "/tasks/bulk/"+bulk.ID, nil, nil)
	require.Equal(t, http.StatusNotFound, status)
	status, _ = s.ask(t, acme, http.MethodGet, "/tasks/bulk/"+bulk.ID+"?wait=20s", nil, &bulk)
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, []int{1, 1}, []int{bulk.Done, bulk.Failed}, "%+v", bulk)
	require.Contains(t, bulk.Examples[0].Reason, "there is no task with this id")
	var left taskDone
	status, _ = s.ask(t, beta, http.MethodGet, "/tasks/"+theirs, nil, &left)
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, api.TaskQueued, left.Status)
	status, _ = s.ask(t, firstAdmin, http.MethodPost, "/tasks/"+theirs+"/cancel", nil, nil)
	require.Equal(t, http.StatusOK, status)
}

// TestARevokedTokenStopsToWork has a token that was in use, at the gateway that revoked it and at another.
func TestARevokedTokenStopsToWork(t *testing.T) {
	t.Parallel()
	one, two := newSecured(t, plane.NodeOptions{}), newSecured(t, plane.NodeOptions{})
	token := one.token(t, api.TokenRequest{Name: "ci", Role: api.RoleViewer})
	for _, s := range []*secured{one, two} {
		status, p := s.ask(t, token.Secret, http.MethodGet, "/tasks", nil, nil)
		require.Equal(t, http.StatusOK, status, "a new token works everywhere at once: %+v", p)
	}
	revoked := time.Now()
	one.revoke(t, token.ID)
	for _, s := range []*secured{one, two} {
		require.Eventually(t, func() bool {
			status, _ := s.ask(t, token.Secret, http.MethodGet, "/tasks", nil, nil)
			return status == http.StatusUnauthorized
		}, patience, 50*time.Millisecond)
	}
	require.Less(t, time.Since(revoked), 10*time.Second)
	data, err := os.ReadFile(one.audit)
	require.NoError(t, err)
	require.NotContains(t, string(data), token.Secret)
	var made, gone guard.Entry
	for line := range bytes.Lines(data) {
		var e guard.Entry
		require.NoError(t, json.Unmarshal(line, &e))
		switch {
		case e.Operation == "create-token" && e.Target["token"] == token.ID:
			made = e
		case e.Operation == "revoke-token" && e.Target["id"] == token.ID:
			gone = e
		}
	}
	require.Equal(t, []any{201, "done", "first-admin"}, []any{made.Status, made.Outcome, made.ID})
	require.Equal(t, []any{200, "done", "first-admin"}, []any{gone.Status, gone.Outcome, gone.ID})
}

// TestWhoMayRegister has agents with no token, with wrong ones, and with one for another cluster.
func TestWhoMayRegister(t *testing.T) {
	t.Parallel()
	s := newSecured(t, plane.NodeOptions{})
	elsewhere := s.EnsureCluster(t, api.ClusterConfig{})
	id := plane.UniqueID("a")
	other := s.token(t, api.TokenRequest{Name: "other", Kind: api.TokenJoin, Cluster: elsewhere}).Secret
	another := s.token(t, api.TokenRequest{Name: "another", Kind: api.TokenJoin, Cluster: s.cluster,
		AgentID: "somebody"}).Secret
	operator := s.token(t, api.TokenRequest{Name: "op", Role: api.RoleAdmin}).Secret
	run := func(token string) *running {
		return startAgent(t, agent.Options{HubURLs: []string{s.URL}, Cluster: s.cluster, ID: id, JoinToken: token},
			map[string]agent.Handler{"echo": echo})
	}
	for name, token := range map[string]string{"none": "", "wrong": "wrong", "of another cluster": other,
		"of another agent": another, "an admin's": operator} {
		select {
		case err := <-run(token).done:
			require.ErrorContains(t, err, "token", name)
		case <-time.After(20 * time.Second):
			t.Fatalf("%s: the agent was not refused", name)
		}
	}
	own := s.token(t, api.TokenRequest{Name: "own", Kind: api.TokenJoin, Cluster: s.cluster, AgentID: id}).Secret
	run(own)
	require.Eventually(t, func() bool {
		var a struct{ Status string }
		status, _ := s.ask(t, firstAdmin, http.MethodGet, "/"+id, nil, &a)
		return status == http.StatusOK && a.Status == "online"
	}, patience, 50*time.Millisecond)
}

// TestOverTLS has agents and clients that prove who they are by certificates.
func TestOverTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca := newCA(t, dir)
	certificate, key := ca.issue(t, dir, "mainstay")
	config, err := guard.ServerTLS(guard.TLSFiles{Certificate: certificate, Key: key, ClientCA: ca.file}, zap.NewNop())
	require.NoError(t, err)
	s := newSecured(t, plane.NodeOptions{TLS: config}, guard.Certificate{Subject: "ops", Role: api.RoleOperator},
		guard.Certificate{Subject: "agents", Joins: true})
	client := func(name string) *tls.Config {
		own, ownKey := "", ""
		if name != "" {
			own, ownKey = ca.issue(t, dir, name)
		}
		config, err := pki.Client(ca.file, own, ownKey)
		require.NoError(t, err)
		return config
	}
	startAgent(t, agent.Options{HubURLs: []string{s.URL}, Cluster: s.cluster, ID: plane.UniqueID("a"),
		TLS: client("agents")}, map[string]agent.Handler{"echo": echo})
	use := func(name string) {
		s.via = &http.Client{Transport: &http.Transport{TLSClientConfig: client(name)}}
		t.Cleanup(s.via.CloseIdleConnections)
	}
	use("ops")
	var done taskDone
	status, p := s.ask(t, "", http.MethodPost, "/tasks", map[string]any{"type": "echo", "cluster": s.cluster}, &done)
	require.Equal(t, http.StatusAccepted, status, "%+v", p)
	status, _ = s.ask(t, "", http.MethodGet, "/tasks/"+done.ID+"?wait=20s", nil, &done)
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, api.TaskCompleted, done.Status, done.Why)
	use("")
	status, _ = s.ask(t, "", http.MethodGet, "/tasks", nil, nil)
	require.Equal(t, http.StatusUnauthorized, status)
	status, _ = s.ask(t, firstAdmin, http.MethodGet, "/tasks", nil, nil)
	require.Equal(t, http.StatusOK, status, "a token does without a certificate")
	s.via = http.DefaultClient
	_, err = s.via.Get(s.URL + "/healthz") //nolint:noctx // it must not get so far
	var unknown *tls.CertificateVerificationError
	require.True(t, errors.As(err, &unknown), "%v", err)
}

// ca signs certificates.
type ca struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	file        string
}

func newCA(t *testing.T, dir string) *ca {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	c := &ca{key: key, file: filepath.Join(dir, "ca.pem"), certificate: &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "ca"},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
		IsCA:         true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}}
	der, err := x509.CreateCertificate(rand.Reader, c.certificate, c.certificate, &key.PublicKey, key)
	require.NoError(t, err)
	writePEM(t, c.file, "CERTIFICATE", der)
	return c
}

func (c *ca) issue(t *testing.T, dir, name string) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, c.certificate, &private.PublicKey, c.key)
	require.NoError(t, err)
	keyDER, err := x509.MarshalECPrivateKey(private)
	require.NoError(t, err)
	certificate, key = filepath.Join(dir, name+".pem"), filepath.Join(dir, name+"-key.pem")
	writePEM(t, certificate, "CERTIFICATE", der)
	writePEM(t, key, "EC PRIVATE KEY", keyDER)
	return certificate, key
}

func writePEM(t *testing.T, file, kind string, der []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}

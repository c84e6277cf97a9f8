package guard

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"

	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/limit"
	"mainstay.dev/sdk/api"
)

// Entry is one line of the audit log: somebody changed something, or tried to and was not let in. Secrets are never in
// it.
type Entry struct {
	Time      time.Time         `json:"time"`
	RequestID string            `json:"request_id"` // ours: no other request has it
	ClientID  string            `json:"client_request_id,omitempty"`
	Method    string            `json:"method"`
	Route     string            `json:"route"`
	Operation string            `json:"operation,omitempty"`
	Target    map[string]string `json:"target,omitempty"` // what the path names, and what the request made
	Kind      api.IdentityKind  `json:"kind,omitempty"`   // absent: nobody
	ID        string            `json:"id,omitempty"`     // of the token or certificate
	Name      string            `json:"name,omitempty"`
	Role      api.AccessRole    `json:"role,omitempty"`
	Tenant    string            `json:"tenant,omitempty"`
	Browser   bool              `json:"browser,omitempty"` // by a browser's session
	Address   string            `json:"address"`
	Proxy     string            `json:"proxy,omitempty"` // that the request came by
	Status    int               `json:"status"`
	Outcome   string            `json:"outcome"` // done, refused, failed or unknown
}

// outcomeOf names a status. begun says that the request came to its handler: a change may stand then although no good
// answer came, as when the client has left before it or Temporal was slow.
func outcomeOf(method string, status int, begun bool) string {
	switch {
	case status < http.StatusBadRequest:
		return "done"
	case status < http.StatusInternalServerError:
		return "refused"
	case begun && mutates(method) && status != http.StatusNotImplemented:
		return "unknown"
	}
	return "failed"
}

// LeftOut is the line that says how many lines about requests without a credential were not written.
type LeftOut struct {
	Time    time.Time `json:"time"`
	Outcome string    `json:"outcome"` // left_out
	LeftOut int       `json:"left_out"`
}

const (
	// strangersRate and strangersBurst bound the lines about requests without a credential, a second and in a burst, of
	// all addresses together: anybody can cause them, and one host may have millions of addresses.
	strangersRate  = 1.0
	strangersBurst = 1000
	// leftOutSaid is how long those beyond are counted before a line says how many they were.
	leftOutSaid = time.Minute
)

// Audit writes the audit log.
type Audit struct {
	mu        sync.Mutex
	out       io.WriteCloser
	logger    *zap.Logger
	strangers *limit.Rate
	leftOut   int // lines, since the last LeftOut
}

// OpenAudit opens the log: "log" is the process's own, "off" none, anything else a file that is appended to.
func OpenAudit(destination string, logger *zap.Logger) (*Audit, error) {
	switch destination {
	case "off":
		return nil, nil
	case "log", "":
		return newAudit(nil, logger.Named("audit")), nil
	}
	file, err := os.OpenFile(destination, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the audit log: %w", err)
	}
	return newAudit(file, logger), nil
}

// newAudit makes one that writes to out, or to logger if that is nil.
func newAudit(out io.WriteCloser, logger *zap.Logger) *Audit {
	return &Audit{out: out, logger: logger, strangers: limit.NewRate(strangersRate, strangersBurst)}
}

// Close ends it. A nil Audit is fine.
func (a *Audit) Close() error {
	if a == nil {
		return nil
	}
	a.sayLeftOut()
	if a.out == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.out.Close()
}

// write adds a line about somebody with a credential.
func (a *Audit) write(e *Entry) {
	if a != nil {
		a.add(e.Outcome, e)
	}
}

// writeStranger adds a line about somebody without one, unless there are too many of them.
func (a *Audit) writeStranger(e *Entry, now time.Time) {
	switch {
	case a == nil:
	case a.strangers.Take("all", 1, now) == 0:
		a.add(e.Outcome, e)
	default:
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.leftOut++; a.leftOut == 1 {
			time.AfterFunc(leftOutSaid, a.sayLeftOut)
		}
	}
}

func (a *Audit) sayLeftOut() {
	a.mu.Lock()
	said := LeftOut{Time: time.Now().UTC(), Outcome: "left_out", LeftOut: a.leftOut}
	a.leftOut = 0
	a.mu.Unlock()
	if said.LeftOut > 0 {
		a.add(said.Outcome, &said)
	}
}

// add writes a line. The action is already done, so a failure is only logged.
func (a *Audit) add(outcome string, entry any) {
	if a.out == nil {
		a.logger.Info(outcome, zap.Any("audit", entry))
		return
	}
	line, err := json.Marshal(entry)
	if err == nil {
		a.mu.Lock()
		_, err = a.out.Write(append(line, '\n'))
		a.mu.Unlock()
	}
	if err != nil {
		a.logger.Error("The audit log could not be written", zap.Error(err), zap.Any("audit", entry))
	}
}

// entryOf is the line of a request that has been answered.
func entryOf(r *http.Request, route httpapi.Route, id *access.Identity, at time.Time, status int, begun bool) *Entry {
	client := httpapi.ClientOf(r)
	return &Entry{
		Time:      at.UTC(),
		RequestID: httpapi.RequestID(r.Context()),
		ClientID:  httpapi.ClientRequestID(r.Context()),
		Method:    r.Method,
		Route:     route.Path,
		Operation: route.Operation,
		Kind:      id.Kind, ID: id.ID, Name: id.Name, Role: id.Role, Tenant: id.Tenant, Browser: id.Cookie,
		Address: client.Address, Proxy: client.Proxy, Status: status, Outcome: outcomeOf(r.Method, status, begun),
	}
}

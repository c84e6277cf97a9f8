package coolify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"mainstay.dev/mainstay/internal/spawner"
)

const (
	// callLimit bounds one request, and answerLimit the bytes of its answer.
	callLimit   = 15 * time.Second
	answerLimit = 32 << 20
	// quoteLimit bounds how much of a refusal is quoted.
	quoteLimit = 300
)

// errNotFound is Coolify's answer about a missing thing.
var errNotFound = errors.New("not found")

// application has the fields that are read of one of Coolify's applications.
type application struct {
	UUID        string `json:"uuid"`
	Name        string `json:"name"`
	Description string `json:"description"`
	// Status is a word such as running or exited, and after a colon the health as Coolify sees it.
	Status    string    `json:"status"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

func (a *application) is(status string) bool { return strings.HasPrefix(a.Status, status) }

// variable is one of an application's environment.
type variable struct {
	Key     string `json:"key"`
	Value   string `json:"value"`
	Literal bool   `json:"is_literal"`
}

// call sends a request and decodes the answer. Only what Coolify's absence or a busy Coolify explains is worth another
// try; all else is spawner.ErrRefused.
func (c *Coolify) call(ctx context.Context, what, method, path string, body, answer any) error {
	if err := c.send(ctx, method, path, body, answer); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// direct follows no redirection: the token would go along.
var direct = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

func (c *Coolify) send(ctx context.Context, method, path string, body, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	var content bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&content).Encode(body); err != nil {
			return err
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, &content)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+c.token)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json")
	response, err := direct.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, answerLimit))
	switch code := response.StatusCode; {
	case err != nil:
		return err
	case code == http.StatusNotFound && method != http.MethodPost:
		return errNotFound
	case code >= 500, code == http.StatusTooManyRequests:
		return fmt.Errorf("Coolify answers %s", response.Status)
	case code >= 300:
		quote := strings.ToValidUTF8(string(text[:min(len(text), quoteLimit)]), "?")
		return fmt.Errorf("%w: Coolify answers %s: %s", spawner.ErrRefused, response.Status, quote)
	case answer == nil:
		return nil
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return fmt.Errorf("read the answer of Coolify: %w", err)
	}
	return nil
}

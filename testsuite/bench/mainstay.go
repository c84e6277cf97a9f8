package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"go.temporal.io/sdk/client"

	"mainstay.dev/mainstay/agent"
	"mainstay.dev/mainstay/contract"
)

// TaskType is the type of the benchmark's tasks.
const TaskType = "bench"

// Handler is the benchmark's handler: it answers when it began, in nanoseconds since 1970.
func Handler(context.Context, *agent.Task) (any, error) { return time.Now().UnixNano(), nil }

// Mainstay is the whole way of a task through Mainstay: REST, workflow, lane, hub, an agent in another process, and
// back.
type Mainstay struct {
	client client.Client // only to read when tasks closed
	url    string
	body   []byte
	http   *http.Client
}

// NewMainstay submits to the gateway at url.
func NewMainstay(c client.Client, url, cluster string, clients int) (*Mainstay, error) {
	body, err := json.Marshal(map[string]string{"type": TaskType, "cluster": cluster})
	if err != nil {
		return nil, fmt.Errorf("encode a task: %w", err)
	}
	return &Mainstay{client: c, url: url, body: body,
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}, Timeout: time.Minute}}, nil
}

// Name implements Side.
func (m *Mainstay) Name() string { return "Mainstay" }

// Submit implements Side.
func (m *Mainstay) Submit(ctx context.Context) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, m.url+"/api/v1/agents/tasks",
		bytes.NewReader(m.body))
	if err != nil {
		return "", err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := m.http.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	if response.StatusCode != http.StatusAccepted {
		return "", fmt.Errorf("HTTP %d: %s", response.StatusCode, text)
	}
	var task struct {
		ID string `json:"id"`
	}
	return task.ID, json.Unmarshal(text, &task)
}

// Begun implements Side.
func (m *Mainstay) Begun(ctx context.Context, id string) (time.Time, time.Time, error) {
	workflowID := contract.TaskWorkflowID(id)
	closed, err := waitClosed(ctx, m.client, workflowID)
	if err != nil {
		return time.Time{}, time.Time{}, err
	}
	var state contract.TaskState
	if err := m.client.GetWorkflow(ctx, workflowID, "").Get(ctx, &state); err != nil {
		return time.Time{}, time.Time{}, err
	}
	var began int64
	err = json.Unmarshal(state.Result, &began)
	return time.Unix(0, began), closed, err
}

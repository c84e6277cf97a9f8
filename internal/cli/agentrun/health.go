package agentrun

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"mainstay.dev/mainstay/internal/connlimit"
	"mainstay.dev/mainstay/internal/textfile"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
)

// maxProbes is how many connections for probes there may be: the oldest makes room, so that the agent's tasks have
// files and memory, and probes an answer, whoever else can reach the port.
const maxProbes = 64

// serveAgentHealth serves an agent's probes, or nothing without an address. Where nobody has chosen the address it may
// be in use, as by another agent of the machine: then there are no probes. stop ends it.
func serveAgentHealth(p probes, handler http.Handler, log *slog.Logger) (stop func(), err error) {
	if p.address == "" {
		return func() {}, nil
	}
	listener, err := net.Listen("tcp", p.address)
	if err != nil && !p.chosen {
		log.Info("There are no health probes of this agent: their address cannot be used; choose another with --health",
			"address", p.address, "error", err)
		return func() {}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("the health probes cannot be served at %s: %w\nChoose another address with --health",
			p.address, err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == p.path {
			r.URL.Path = healthPath
		}
		handler.ServeHTTP(w, r)
	}), ReadTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second, MaxHeaderBytes: 16 << 10}
	server.SetKeepAlivesEnabled(false) // a probe is one request
	connlimit.NewPublic(maxProbes, zap.NewNop()).Apply(server)
	go func() { _ = server.Serve(listener) }()
	log.Info("Health probes are served", "address", listener.Addr().String(), "path", p.path)
	return func() { _ = server.Close() }, nil
}

// healthFileEvery is how often the health file is read.
const healthFileEvery = time.Second

// watchHealthFile reports what a file says of the agent until ctx ends: a number from 0 to 1 or a level, and then why.
// No file, or an empty one, means healthy.
func watchHealthFile(ctx context.Context, path string, runner *agent.Agent, log *slog.Logger) {
	tick := time.NewTicker(healthFileEvery)
	defer tick.Stop()
	said := ""
	for {
		text, err := os.ReadFile(path)
		if err != nil && !os.IsNotExist(err) {
			log.Warn("the health file cannot be read", "error", err)
		}
		if line, _, _ := strings.Cut(strings.TrimPrefix(string(text), textfile.Mark), "\n"); line != said {
			said = line
			health, note, err := parseHealth(line)
			if err != nil {
				log.Warn("the health file is not understood; the agent's health stays as it was", "error", err)
			} else {
				runner.ReportHealth(health, note)
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// parseHealth reads "0.4 disk errors" or "degraded disk errors".
func parseHealth(line string) (health float64, note string, err error) {
	if err := textfile.Check(line); err != nil {
		return 0, "", err
	}
	word, note, _ := strings.Cut(strings.TrimSpace(line), " ")
	switch level := api.HealthLevel(word); level {
	case "":
		return 1, "", nil
	case api.HealthHealthy, api.HealthDegraded, api.HealthWarning, api.HealthCritical, api.HealthFailed:
		return api.ScoreOf(level), strings.TrimSpace(note), nil
	}
	health, err = strconv.ParseFloat(word, 64)
	if err != nil || !(health >= 0 && health <= 1) { // also refuses NaN
		return 0, "", fmt.Errorf(
			"it must begin with a number from 0 to 1, or with healthy, degraded, warning, critical or failed")
	}
	return health, strings.TrimSpace(note), nil
}

package httpapi

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"mainstay.dev/sdk/protocol"
)

type metrics struct {
	duration *prometheus.HistogramVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "mainstay_http_request_duration_seconds",
		Help:    "Time to answer HTTP requests, by route pattern. Agent polls and waits are held on purpose.",
		Buckets: []float64{.002, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
	}, []string{"route", "method", "status"})}
	r.MustRegister(m.duration)
	return m
}

type loggerKey struct{}

// loggerOf is the server's logger, carried in every request's context.
func loggerOf(ctx context.Context) *zap.Logger {
	if l, ok := ctx.Value(loggerKey{}).(*zap.Logger); ok {
		return l
	}
	return zap.NewNop()
}

// observe measures each request and hands the logger down.
func observe(m *metrics, logger *zap.Logger) gin.HandlerFunc {
	return func(c *gin.Context) {
		start := time.Now()
		ids := requestIDsOf(c.Request.Context())
		logger := logger.With(zap.String("request_id", ids.own))
		if ids.client != "" {
			logger = logger.With(zap.String("client_request_id", ids.client))
		}
		c.Request = c.Request.WithContext(context.WithValue(c.Request.Context(), loggerKey{}, logger))
		strictHeaders(c)
		c.Next()
		took := time.Since(start)
		m.duration.WithLabelValues(route(c), method(c.Request.Method),
			strconv.Itoa(c.Writer.Status())).Observe(took.Seconds())
		logger.Debug("request", zap.String("method", c.Request.Method), zap.String("route", route(c)),
			zap.Int("status", c.Writer.Status()), zap.Duration("took", took), zap.String("client",
				ClientOf(c.Request).Address))
	}
}

// route is the pattern that matched, with OpenAPI's braces. Paths that match nothing share one label.
func route(c *gin.Context) string {
	pattern := c.FullPath()
	if pattern == "" {
		return "unmatched"
	}
	parts := strings.Split(pattern, "/")
	for i, part := range parts {
		if name, ok := strings.CutPrefix(part, ":"); ok {
			parts[i] = "{" + name + "}"
		}
	}
	return strings.Join(parts, "/")
}

// method keeps made-up methods from becoming labels.
func method(m string) string {
	switch m {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodOptions:
		return m
	}
	return "other"
}

// recovery turns a panic into a 500 that says nothing about it; the log has it with its stack.
func recovery() gin.HandlerFunc {
	return func(c *gin.Context) {
		logger := loggerOf(c.Request.Context())
		defer func() {
			cause := recover()
			if cause == nil {
				return
			}
			if err, ok := cause.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(cause)
			}
			c.Abort()
			if c.Request.Context().Err() != nil {
				logger.Debug("client went away", zap.String("route", route(c)))
				return
			}
			logger.Error("panic in a request", zap.String("route", route(c)), zap.Any("panic", cause),
				zap.Stack("stack"))
			if !c.Writer.Written() {
				writeProblem(c, Problem(protocol.CodeInternal,
					"the request failed on our side; the server's log says why"))
			}
		}()
		c.Next()
	}
}

// limitUnreadBody bounds how long net/http waits for the rest of a body that no handler read.
func limitUnreadBody(c *gin.Context) {
	c.Next()
	if c.Request.ContentLength != 0 {
		// Only writers without a connection (tests) cannot set it; the deadline is reset before the next request.
		_ = http.NewResponseController(c.Writer).SetReadDeadline(time.Now().Add(time.Second))
	}
}

// closeChunked closes a connection of HTTP/1 after a body without a length. A proxy could read the request in another
// way, above all one that also names a length, and take the rest for another client's request.
func closeChunked(c *gin.Context) {
	if len(c.Request.TransferEncoding) > 0 && c.Request.ProtoMajor == 1 {
		c.Header("Connection", "close")
	}
}

// drained is how much of a body that nobody reads is waited for, in bytes, so that the connection can be used again.
const drained = 16 << 10

// closeUnread closes the connection after the answer to a request that was refused without its body, unless little of
// it is left.
func closeUnread(c *gin.Context) {
	if left := c.Request.ContentLength; left < 0 || left > drained || c.GetHeader("Expect") != "" {
		c.Header("Connection", "close")
	}
}

// plainBody refuses compressed bodies as what they are, and not as bad JSON.
func plainBody(c *gin.Context) {
	switch c.GetHeader("Content-Encoding") {
	case "", "identity":
		return
	}
	writeProblem(c, newProblem(http.StatusUnsupportedMediaType, protocol.CodeInvalidRequest,
		"send the body as it is: no Content-Encoding is taken", nil))
}

func noRoute(c *gin.Context) {
	writeProblem(c, Problem(protocol.CodeNotFound, "there is nothing at this path; /docs lists what there is"))
}

func (s *Server) noMethod(c *gin.Context) {
	if allow := c.Writer.Header().Get("Allow"); slices.Contains(strings.Split(allow, ", "), http.MethodGet) &&
		!strings.Contains(allow, http.MethodHead) && !s.streams[c.Request.URL.Path] {
		c.Header("Allow", allow+", "+http.MethodHead)
	}
	writeProblem(c, Problem(protocol.CodeMethodNotAllowed,
		"this path does not take this method; the Allow header lists those it takes"))
}

// writeProblem answers outside of huma.
func writeProblem(c *gin.Context, err error) {
	var p *problem
	if !errors.As(err, &p) {
		p = newProblem(http.StatusInternalServerError, protocol.CodeInternal, "", nil)
	}
	for name, values := range p.GetHeaders() {
		c.Header(name, values[0])
	}
	body, err := json.Marshal(p.Problem)
	if err != nil {
		c.AbortWithStatus(http.StatusInternalServerError)
		return
	}
	c.Data(p.Status, problemType, body)
	c.Abort()
}

// strictHeaders keep a browser from doing more with an answer than showing it. Pages set what they need instead.
func strictHeaders(c *gin.Context) {
	c.Header("X-Content-Type-Options", "nosniff")
	c.Header("Referrer-Policy", "no-referrer")
	c.Header("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	c.Header("Cross-Origin-Resource-Policy", "same-origin")
	if strings.HasPrefix(c.Request.URL.Path, "/api/") {
		c.Header("Cache-Control", "no-store")
	}
}

// RequestIDHeader names a request: a client may send its own name, which comes back, and every answer has one.
const RequestIDHeader = "X-Request-Id"

// maxRequestID bounds what a client may send.
const maxRequestID = 128

type requestIDKey struct{}

// requestIDs are our name of a request, which no other has, and the client's, which may be anything harmless or empty.
type requestIDs struct{ own, client string }

func requestIDsOf(ctx context.Context) requestIDs {
	ids, _ := ctx.Value(requestIDKey{}).(requestIDs)
	return ids
}

// RequestID is our name of the request that ctx belongs to, or "".
func RequestID(ctx context.Context) string { return requestIDsOf(ctx).own }

// ClientRequestID is the name that the client gave the request that ctx belongs to, or "".
func ClientRequestID(ctx context.Context) string { return requestIDsOf(ctx).client }

// identify names a request and its answer. The client's own name counts if it is harmless in a log.
func identify(c *gin.Context) {
	ids := requestIDs{own: strings.ToLower(rand.Text())}
	if id := c.GetHeader(RequestIDHeader); harmless(id) {
		ids.client = id
	}
	c.Request = c.Request.WithContext(context.WithValue(c.Request.Context(), requestIDKey{}, ids))
	c.Header(RequestIDHeader, cmp.Or(ids.client, ids.own))
	c.Next()
}

// harmless reports whether an id is one word of letters, digits and a few signs.
func harmless(id string) bool {
	// no blank, no quote
	return id != "" && len(id) <= maxRequestID && strings.Trim(id,
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:/+=@-") == ""
}

// untraced are routes that are asked all the time, or held open: their spans would say nothing.
var untraced = map[string]bool{
	protocol.PollPath: true, "/metrics": true, "/healthz": true, protocol.ReadyPath: true, "/health": true,
}

// streamPath is untraced too where it is read, and held open.
const streamPath = "/api/v1/agents/events"

// traced makes a span of each request, in the trace of the client that sent a traceparent.
func traced(tracer trace.Tracer) gin.HandlerFunc {
	return func(c *gin.Context) {
		pattern := route(c)
		if c.FullPath() == "" || untraced[pattern] || pattern == streamPath && c.Request.Method == http.MethodGet {
			return
		}
		ctx := propagation.TraceContext{}.Extract(c.Request.Context(), propagation.HeaderCarrier(c.Request.Header))
		name := method(c.Request.Method)
		ctx, span := tracer.Start(ctx, name+" "+pattern, trace.WithSpanKind(trace.SpanKindServer),
			trace.WithAttributes(attribute.String("http.request.method", name),
				attribute.String("http.route", pattern)))
		defer span.End()
		c.Request = c.Request.WithContext(ctx)
		c.Next()
		status := c.Writer.Status()
		span.SetAttributes(attribute.Int("http.response.status_code", status))
		if status >= http.StatusInternalServerError {
			span.SetStatus(codes.Error, strings.ToLower(http.StatusText(status)))
		}
	}
}

// Client is where a request comes from.
type Client struct {
	// Address is the client's host; with its port where it has connected to us itself.
	Address string
	// Proxy is the other end of our connection where trusted proxies stand between; empty: none does.
	Proxy string
	// HTTPS says that the client speaks https, to us or to a proxy. A request that only claims so is believed: all that
	// comes of it is that its own cookie is made stricter.
	HTTPS bool
}

// ForwardedFor is the header in which proxies give the client's address.
const ForwardedFor = "X-Forwarded-For"

// Proxies are those whose word about clients counts. A nil one trusts nobody.
type Proxies struct{ trusted []netip.Prefix }

// NewProxies trusts proxies at some addresses.
func NewProxies(trusted []netip.Prefix) *Proxies { return &Proxies{trusted} }

func (p *Proxies) trusts(address netip.Addr) bool {
	return slices.ContainsFunc(p.trusted, func(prefix netip.Prefix) bool { return prefix.Contains(address) })
}

// client finds out who a request comes from. Each proxy appends its client's address to the header, so it is read from
// the end: the first address that is not a trusted proxy's is the client's. The client may have made up those before
// it. A proxy that names no address stands for the client itself.
func (p *Proxies) client(r *http.Request) Client {
	c := Client{Address: r.RemoteAddr, HTTPS: r.TLS != nil || claimsHTTPS(r.Header)}
	remote, known := hostOf(r.RemoteAddr)
	if p == nil || !known || !p.trusts(remote) {
		return c
	}
	elements := strings.Split(strings.Join(r.Header.Values(ForwardedFor), ","), ",")
	for _, element := range slices.Backward(elements) {
		if strings.TrimSpace(element) == "" {
			continue
		}
		address, known := hostOf(element)
		if !known {
			break
		}
		c.Address, c.Proxy = address.String(), r.RemoteAddr
		if !p.trusts(address) {
			break
		}
	}
	return c
}

// hostOf reads an address with or without port and brackets.
func hostOf(text string) (netip.Addr, bool) {
	host := strings.TrimSpace(text)
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	} else if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		host = host[1 : len(host)-1]
	}
	address, err := netip.ParseAddr(host)
	return address.Unmap().WithZone(""), err == nil
}

// claimsHTTPS reports whether a request says that its client speaks https to a proxy.
func claimsHTTPS(h http.Header) bool {
	first, _, _ := strings.Cut(h.Get("X-Forwarded-Proto"), ",")
	return strings.EqualFold(strings.TrimSpace(first), "https")
}

type clientKey struct{}

// ClientOf is where a request comes from.
func ClientOf(r *http.Request) Client {
	if c, known := ClientFrom(r.Context()); known {
		return c
	}
	return (*Proxies)(nil).client(r)
}

// ClientFrom is where the request of a context comes from, if it was served by a Server.
func ClientFrom(ctx context.Context) (Client, bool) {
	c, known := ctx.Value(clientKey{}).(Client)
	return c, known
}

// locate finds out where each request comes from.
func locate(p *Proxies) gin.HandlerFunc {
	return func(c *gin.Context) {
		c.Request = c.Request.WithContext(context.WithValue(c.Request.Context(), clientKey{}, p.client(c.Request)))
		c.Next()
	}
}

package httpapi

import (
	"cmp"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/validation"
	"go.uber.org/zap"

	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
	"mainstay.dev/sdk/spelling"
)

// statuses is the one table from problem codes to HTTP statuses. invalid_request is 422 here (the request is readable
// but wrong); a request that cannot be read at all (broken JSON, a missing body) gets the same code and 400.
var statuses = map[string]int{
	protocol.CodeInvalidRequest:   http.StatusUnprocessableEntity,
	protocol.CodeUnauthorized:     http.StatusUnauthorized,
	protocol.CodeForbidden:        http.StatusForbidden,
	protocol.CodeCrossOrigin:      http.StatusForbidden,
	protocol.CodeRateLimited:      http.StatusTooManyRequests,
	protocol.CodeNotFound:         http.StatusNotFound,
	protocol.CodeUnknownToken:     http.StatusNotFound,
	protocol.CodeUnknownCluster:   http.StatusNotFound,
	protocol.CodeUnknownTask:      http.StatusNotFound,
	protocol.CodeUnknownAgent:     http.StatusNotFound,
	protocol.CodeUnknownFailover:  http.StatusNotFound,
	protocol.CodeUnknownDrain:     http.StatusNotFound,
	protocol.CodeUnknownSchedule:  http.StatusNotFound,
	protocol.CodeUnknownBulk:      http.StatusNotFound,
	protocol.CodeUnknownJob:       http.StatusNotFound,
	protocol.CodeUnknownRun:       http.StatusNotFound,
	protocol.CodeUnknownArray:     http.StatusNotFound,
	protocol.CodeUnknownEvent:     http.StatusNotFound,
	protocol.CodeUnknownScaling:   http.StatusNotFound,
	protocol.CodeMethodNotAllowed: http.StatusMethodNotAllowed,
	protocol.CodeUnknownSession:   http.StatusConflict,
	protocol.CodeSessionRevoked:   http.StatusForbidden,
	protocol.CodeFenced:           http.StatusConflict,
	protocol.CodeAgentIDInUse:     http.StatusConflict,
	protocol.CodeClusterFull:      http.StatusConflict,
	protocol.CodeClusterExists:    http.StatusConflict,
	protocol.CodeScheduleExists:   http.StatusConflict,
	protocol.CodeClusterNotEmpty:  http.StatusConflict,
	protocol.CodeSuperseded:       http.StatusConflict,
	protocol.CodeIdempotency:      http.StatusConflict,
	protocol.CodeConflict:         http.StatusConflict,
	protocol.CodePrecondition:     http.StatusPreconditionFailed,
	protocol.CodePayloadTooLarge:  http.StatusRequestEntityTooLarge,
	protocol.CodeUnavailable:      http.StatusServiceUnavailable,
	protocol.CodeNotSupported:     http.StatusNotImplemented,
	protocol.CodeInternal:         http.StatusInternalServerError,
}

// Patterns of the OpenAPI document that are said in words.
const (
	idPattern     = `^[a-z0-9][a-z0-9._-]*$`
	fullIDPattern = `^([a-z0-9][a-z0-9._-]*:)?[a-z0-9][a-z0-9._-]*$`
	anyDuration   = `^[0-9.:hmsdnuµ]+$`
	positive      = `^[0-9.:hmsdnuµ]*[1-9][0-9.:hmsdnuµ]*$`
)

// invalidDetail goes with errors[].
const invalidDetail = "the request is not valid; errors says where"

// problem is an error that is written as application/problem+json.
type problem struct {
	protocol.Problem
	retryAfter time.Duration // 0: none is said, but after 503
}

// RetryAfter makes the error that answers a client that sends too much: it may come back after wait.
func RetryAfter(wait time.Duration, detail string) error {
	p := newProblem(http.StatusTooManyRequests, protocol.CodeRateLimited, detail, nil)
	p.retryAfter = wait
	return p
}

// Problem makes the error that answers a request with code and detail. The status comes from the code; a code that is
// not in the protocol answers 500. detail and fields must not repeat what the client submitted.
func Problem(code, detail string, fields ...api.ProblemField) error {
	status, known := statuses[code]
	if !known {
		code, status = protocol.CodeInternal, http.StatusInternalServerError
	}
	return newProblem(status, code, detail, fields)
}

// Code returns the code of an error made by Problem, and whether err is one.
func Code(err error) (string, bool) {
	var p *problem
	if !errors.As(err, &p) {
		return "", false
	}
	return p.Problem.Code, true
}

func newProblem(status int, code, detail string, fields []api.ProblemField) *problem {
	return &problem{Problem: protocol.Problem{
		Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail, Code: code, Errors: fields,
	}}
}

// Error implements error.
func (p *problem) Error() string { return p.Problem.Code + ": " + p.Detail }

// GetStatus implements huma.StatusError.
func (p *problem) GetStatus() int { return p.Status }

// ContentType implements huma.ContentTypeFilter.
func (p *problem) ContentType(string) string { return problemType }

// GetHeaders implements huma.HeadersError: a client may come back in a second when Temporal was away. A caller who
// lacks credentials learns how to send them.
func (p *problem) GetHeaders() http.Header {
	switch {
	case p.Status == http.StatusUnauthorized:
		return http.Header{"Www-Authenticate": {`Bearer realm="mainstay"`}}
	case p.retryAfter > 0:
		return http.Header{"Retry-After": {strconv.Itoa(int((p.retryAfter + time.Second - 1) / time.Second))}}
	case p.Status == http.StatusServiceUnavailable:
		return http.Header{"Retry-After": {"1"}}
	}
	return nil
}

const problemType = "application/problem+json"

// overrideHuma replaces huma's error model, which echoes submitted values, and makes field names case-sensitive, so
// that "Type" is an unknown field rather than a second "type". Both are process-wide switches of huma.
var overrideHuma = sync.OnceFunc(func() {
	huma.ValidateStrictCasing = true
	validation.MsgExpectedMinimumNumber = "must be at least %v"
	validation.MsgExpectedMaximumNumber = "must be at most %v"
	huma.NewError = func(status int, detail string, errs ...error) huma.StatusError {
		return fromHuma(nil, status, detail, errs)
	}
	huma.NewErrorWithContext = func(ctx huma.Context, status int, detail string, errs ...error) huma.StatusError {
		return fromHuma(ctx, status, detail, errs)
	}
})

// fromHuma words the errors that huma itself finds. ctx may be nil.
func fromHuma(ctx huma.Context, status int, detail string, errs []error) *problem {
	var ours *problem
	if len(errs) == 1 && errors.As(errs[0], &ours) { // of a body that was too much
		return ours
	}
	switch {
	case status == http.StatusRequestEntityTooLarge:
		if ctx != nil {
			detail = "the request body is larger than " + strconv.FormatInt(bodyLimit(ctx.Operation()), 10) + " bytes"
		}
		return newProblem(status, protocol.CodePayloadTooLarge, detail, nil)
	case status == http.StatusUnsupportedMediaType:
		return newProblem(status, protocol.CodeInvalidRequest, "send the body as Content-Type: application/json", nil)
	case status == http.StatusNotAcceptable:
		return newProblem(status, protocol.CodeInvalidRequest, "only application/json can be answered", nil)
	case status == http.StatusRequestTimeout:
		return newProblem(status, protocol.CodeInvalidRequest, "the request body did not arrive in time", nil)
	case detail == "cannot read request body": // huma's 500: the client has left, or its chunks are malformed
		return newProblem(http.StatusBadRequest, protocol.CodeInvalidRequest,
			"the request body ended too early, or its chunks are not well formed", nil)
	case status >= http.StatusInternalServerError:
		if ctx != nil && len(errs) > 0 {
			loggerOf(ctx.Context()).Error("request failed", zap.String("operation", ctx.Operation().OperationID),
				zap.Errors("errors", errs))
		}
		return newProblem(status, codeOfStatus(status), "the request failed on our side; the server's log says why",
			nil)
	case status == http.StatusBadRequest, status == http.StatusUnprocessableEntity:
		if t := bodyType(ctx); t != nil {
			locateBody(t, errs)
		}
		fields := invalidFields(errs, bodyField(ctx))
		nameMeant(ctx, fields)
		if detail == "validation failed" {
			detail = invalidDetail
		}
		return newProblem(status, protocol.CodeInvalidRequest, detail, fields)
	}
	return newProblem(status, codeOfStatus(status), detail, invalidFields(errs, nil))
}

// nameMeant adds to messages about unknown names the names that may have been meant.
func nameMeant(ctx huma.Context, fields []api.ProblemField) {
	body, isBody := ctx.(*boundedBody)
	for i := range fields {
		f := &fields[i]
		name, isQuery := strings.CutPrefix(f.Location, "query.")
		switch {
		case isQuery && ctx != nil && f.Message == "unknown query parameter":
			f.Message += meant(name, queryParameters(ctx.Operation()))
		case isBody && f.Message == validation.MsgUnexpectedProperty:
			f.Message = cmp.Or(body.bounds.meant(f.Location), f.Message)
		}
	}
}

// mostNamed bounds the names that meant lists.
const mostNamed = 20

// meant says which of the known names somebody may have meant who wrote name; where none is near, it lists a few.
func meant(name string, known []string) string {
	slices.Sort(known)
	switch near := spelling.Nearest(name, known); {
	case near != "":
		return "; did you mean " + near + "?"
	case len(known) == 0 || len(known) > mostNamed:
		return ""
	}
	return "; known are " + strings.Join(known, ", ")
}

func queryParameters(operation *huma.Operation) (names []string) {
	for _, p := range operation.Parameters {
		if p.In == "query" {
			names = append(names, p.Name)
		}
	}
	return names
}

func codeOfStatus(status int) string {
	switch {
	case status == http.StatusUnauthorized:
		return protocol.CodeUnauthorized
	case status == http.StatusForbidden:
		return protocol.CodeForbidden
	case status == http.StatusTooManyRequests:
		return protocol.CodeRateLimited
	case status == http.StatusNotFound:
		return protocol.CodeNotFound
	case status == http.StatusMethodNotAllowed:
		return protocol.CodeMethodNotAllowed
	case status == http.StatusConflict:
		return protocol.CodeConflict
	case status == http.StatusServiceUnavailable:
		return protocol.CodeUnavailable
	case status >= http.StatusInternalServerError:
		return protocol.CodeInternal
	}
	return protocol.CodeInvalidRequest
}

// maxFields bounds errors[]: a client needs the first mistakes, not ten thousand of them.
const maxFields = 20

// invalidFields words huma's findings. For counts and durations, which at finds by location, it names the bounds.
func invalidFields(errs []error, at func(location string) (reflect.StructField, bool)) []api.ProblemField {
	var fields []api.ProblemField
	for _, err := range errs {
		if err == nil || len(fields) == maxFields {
			continue
		}
		detailer, ok := err.(huma.ErrorDetailer)
		if !ok {
			fields = append(fields, api.ProblemField{Location: "body", Message: "is not valid"})
			continue
		}
		d := detailer.ErrorDetail()
		message := safeMessage(d)
		if at != nil {
			if f, found := at(d.Location); found {
				message = boundedMessage(f, d.Value, message)
			}
		}
		fields = append(fields, api.ProblemField{Location: safeLocation(d.Location), Message: message})
	}
	return fields
}

// safeMessage is huma's message without any part of the submitted value. Messages of string formats end in ": " and
// the parser's own words, which quote the value.
func safeMessage(d *huma.ErrorDetail) string {
	message := d.Message
	switch {
	case strings.HasPrefix(message, "expected value to be one of "):
		// only words of ours, of which the value may be a part
		return message
	case message == "expected string to match pattern "+idPattern:
		return "must be lower-case letters, digits, \".\", \"_\" and \"-\", and begin with a letter or digit"
	case message == "expected string to match pattern "+fullIDPattern:
		return "must be lower-case letters, digits, \".\", \"_\" and \"-\", and begin with a letter or digit; the tenant and \":\" may stand before it"
	}
	for _, prefix := range []string{"expected string to be ", "expected duration"} {
		if strings.HasPrefix(message, prefix) {
			message, _, _ = strings.Cut(message, ": ")
		}
	}
	if value, ok := d.Value.(string); ok && len(value) > 2 && strings.Contains(message, value) {
		return "is not valid"
	}
	return message
}

// safeLocation bounds a location: the names of unknown fields and map keys in it are the client's.
func safeLocation(location string) string {
	const longest = 128
	clean := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, location)
	if len(clean) > longest {
		return clean[:longest] + "…"
	}
	return clean
}

// InvalidField makes the invalid_request error for one part of a request. message names the error without repeating the
// value.
func InvalidField(location, message string) error {
	return Problem(protocol.CodeInvalidRequest, invalidDetail,
		api.ProblemField{Location: safeLocation(location), Message: message})
}

// InvalidFields is InvalidField for several parts.
func InvalidFields(fields []api.ProblemField) error {
	return Problem(protocol.CodeInvalidRequest, invalidDetail, fields...)
}

// Body returns the body that err would be answered with, and whether err is made by Problem or Invalid.
func Body(err error) (protocol.Problem, bool) {
	var p *problem
	if !errors.As(err, &p) {
		return protocol.Problem{}, false
	}
	return p.Problem, true
}

package cluster

import (
	"context"
	"errors"
	"strings"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/httpapi"
	"mainstay.dev/mainstay/protocol"
)

// IfMatch is the precondition of a change. It is exported because huma reads no unexported embedded field.
type IfMatch struct {
	IfMatch string `header:"If-Match" maxLength:"512" doc:"The ETag that the change was made for. When the settings were changed since, the answer is 412 precondition_failed, and nothing happens."`
}

// etag is a revision as a header has it.
func etag(revision string) string { return `"` + revision + `"` }

// revisions are those that the precondition names; none means any. A weak tag never matches, as HTTP has it, so it is
// refused with a word rather than with an answer that nobody understands.
func (m IfMatch) revisions() ([]string, error) {
	text := strings.TrimSpace(m.IfMatch)
	if text == "" || text == "*" {
		return nil, nil
	}
	var revisions []string
	for part := range strings.SplitSeq(text, ",") {
		tag := strings.TrimSpace(part)
		if strings.HasPrefix(tag, "W/") {
			return nil, rest.Invalid("header.If-Match",
				errors.New("is a weak tag, which never matches: send the ETag as it was answered"))
		}
		if len(tag) < 2 || tag[0] != '"' || tag[len(tag)-1] != '"' {
			return nil, rest.Invalid("header.If-Match",
				errors.New(`must be an ETag in double quotes, as it was answered, or *`))
		}
		// it may have come compressed
		revisions = append(revisions, strings.TrimSuffix(tag[1:len(tag)-1], httpapi.CompressedTag))
	}
	return revisions, nil
}

// noneMatches is about PUT with If-None-Match, of which only * has a meaning here: that there is no such cluster.
func (h *Handlers) noneMatches(ctx context.Context, name, header string) error {
	switch strings.TrimSpace(header) {
	case "":
		return nil
	case "*":
	default:
		return rest.Invalid("header.If-None-Match",
			errors.New("must be *, or be left out: the revision that a change was made for goes into If-Match"))
	}
	ctx, cancel := context.WithTimeout(ctx, rest.CallTimeout)
	defer cancel()
	if _, err := h.ClusterConfig(ctx, name); err != nil {
		return err
	}
	return httpapi.Problem(protocol.CodePrecondition,
		"there is a cluster with this name, and If-None-Match: * says that there must be none: leave it out to replace the cluster's settings")
}

// tagged is a cluster with its ETag.
func tagged(c api.Cluster) *clusterOutput { return &clusterOutput{ETag: etag(c.Revision), Body: c} }

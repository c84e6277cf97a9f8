package bulk

import (
	"errors"
	"slices"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/gateway/rest"
)

// bulkSpec checks a request.
func bulkSpec(r *api.BulkRequest) (contract.BulkSpec, error) {
	filter := fleet.TaskFilter{
		Cluster: r.Filter.Cluster,
		Status:  r.Filter.Status,
		Type:    r.Filter.Type,
		Tenant:  r.Filter.Tenant,
		Agent:   r.Filter.Agent,
		Labels:  r.Filter.Labels,
	}
	if r.Filter.SubmittedAfter != nil {
		filter.SubmittedAfter = *r.Filter.SubmittedAfter
	}
	if r.Filter.SubmittedBefore != nil {
		filter.SubmittedBefore = *r.Filter.SubmittedBefore
	}
	ids := slices.Compact(slices.Sorted(slices.Values(r.Filter.IDs)))
	bulk := fleet.Bulk{Action: r.Action, Filter: filter, IDs: ids, All: r.All, Decision: r.Decision,
		Priority: r.Priority, Reason: r.Reason}
	if err := bulk.Validate(); err != nil {
		var field *fleet.FieldError
		if errors.As(err, &field) {
			return contract.BulkSpec{}, rest.Invalid("body."+field.Field, field.Err)
		}
		return contract.BulkSpec{}, rest.Invalid("body", err)
	}
	return contract.BulkSpec{Action: r.Action, Filter: filter, IDs: ids, All: r.All, Decision: r.Decision,
		Priority: r.Priority, Reason: r.Reason}, nil
}

// bulkOf is what was asked for.
func bulkOf(spec *contract.BulkSpec) api.Bulk {
	b := api.Bulk{Action: spec.Action, All: spec.All, Decision: spec.Decision, Priority: int(spec.Priority),
		Reason: spec.Reason}
	if !spec.Filter.Empty() {
		filter := spec.Filter
		b.Filter = &filter
	}
	return b
}

func takeBulk(b *api.Bulk, s *contract.BulkState) {
	b.Status, b.Why, b.Expected = s.Status, s.Why, s.Expected
	b.Matched, b.Done, b.Skipped, b.Failed, b.Examples = s.Matched, s.Done, s.Skipped, s.Failed, s.Examples
}

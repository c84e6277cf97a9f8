package rest

import (
	"cmp"
	"context"
	"time"

	"github.com/google/uuid"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/parallel"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/protocol"
)

const (
	// hubAnswer is how long a hub has to take a question.
	hubAnswer = 3 * time.Second
	// hubMargin is how much longer than asked an answer may take.
	hubMargin = 10 * time.Second
)

const noStandaloneActivities = "asking a hub for what only it knows needs standalone activities, which this Temporal " +
	"does not have: " +
	"use a newer server, with activity.enableStandalone and history.enableChasm on in its dynamic configuration"

// HubQuestion is a question to one hub, or to who polls another queue.
type HubQuestion struct {
	Hub     string
	Queue   string // empty: the hub's
	ID      string // unique
	Summary string
	Wait    time.Duration // how long the hub may take on purpose
	Margin  time.Duration // how much longer the answer may take; zero: hubMargin
}

// Ask puts a question to a hub; see store.Ask. answered is false when the hub does not answer in time.
func Ask[In, Out any](
	ctx context.Context, c *Core, activity contract.Activity[In, Out], q HubQuestion, in In,
) (answer Out, answered bool, err error) {
	takes := q.Wait + cmp.Or(q.Margin, hubMargin)
	ctx, cancel := context.WithTimeout(ctx, hubAnswer+takes)
	defer cancel()
	answer, answered, err = store.Ask(ctx, c.Store, activity, store.Question{ID: q.ID, Summary: q.Summary,
		Queue: cmp.Or(q.Queue, contract.HubQueue(q.Hub)), Begin: hubAnswer, Answer: takes}, in)
	switch {
	case store.KindOf(err) == store.Unsupported:
		return answer, false, httpapi.Problem(protocol.CodeNotSupported, noStandaloneActivities)
	case err != nil && context.Cause(ctx) == context.Canceled: //nolint:errorlint // the asker has gone, which is no fault
		return answer, false, ctx.Err()
	}
	return answer, answered, c.Answer(err, "ask a hub", protocol.CodeInternal)
}

// AskHubs puts a question about a cluster to the hubs of its connected members, or only to that of one member, side by
// side. It answers by hub, and with the first error; a hub that does not answer in time has the zero answer.
func AskHubs[In, Out any](
	ctx context.Context, c *Core, activity contract.Activity[In, Out], state *cluster.Cluster, only, what string,
	id func(cluster, nonce string) string, in In,
) (map[string]Out, error) {
	hubs := state.Hubs()
	if only != "" {
		hubs = nil
		if m := state.Member(only); m != nil && m.Connected() {
			hubs = []string{m.Hub}
		}
	}
	answers, errs := make([]Out, len(hubs)), make([]error, len(hubs))
	parallel.Each(len(hubs), FanOut, func(i int) {
		answers[i], _, errs[i] = Ask(ctx, c, activity, HubQuestion{
			Hub: hubs[i], ID: id(state.Config.Name, uuid.NewString()), Summary: what + " of " + state.Config.Name,
		}, in)
	})
	byHub := make(map[string]Out, len(hubs))
	for i, hub := range hubs {
		if errs[i] == nil {
			byHub[hub] = answers[i]
		}
	}
	return byHub, cmp.Or(errs...)
}

// Instances asks the hubs of a cluster's members which instances of a job run there; no job: of all. The answer repeats
// what its parts have in common.
func (c *Core) Instances(
	ctx context.Context, state *cluster.Cluster, job string,
) (found []contract.FoundInstance, err error) {
	in := contract.ReadInstancesInput{Job: job}
	for more := true; more && err == nil; {
		var answers map[string]contract.ReadInstancesResult
		answers, err = AskHubs(ctx, c, contract.ReadInstancesActivity, state, "", "instances",
			contract.ReadInstancesID, in)
		more = false
		for _, answer := range answers {
			found = append(found, answer.Instances...)
			if n := len(answer.Instances); answer.More && (!more || answer.Instances[n-1].TaskID < in.After) {
				in.After, more = answer.Instances[n-1].TaskID, true
			}
		}
	}
	return found, err
}

package gateway

import (
	"context"
	"time"

	"github.com/google/uuid"

	"mainstay.dev/mainstay/contract"
)

// eventsLate is how much later than it was to come an answer counts: a hub that was killed is asked again after that.
const eventsLate = 3 * time.Second

// readEvents asks a hub for what it saw. answered is false when it does not answer in time.
func (g *Gateway) readEvents(ctx context.Context, hub string, in contract.ReadEventsInput) (read contract.ReadEventsResult, answered bool, err error) {
	return ask(ctx, g, contract.ReadEventsActivity, hubQuestion{
		hub: hub, id: contract.ReadEventsID(hub, uuid.NewString()), summary: "events at hub " + hub,
		wait: in.Wait.Std(), margin: eventsLate,
	}, in)
}

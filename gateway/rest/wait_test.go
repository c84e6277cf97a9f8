package rest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAWaitIsWoken(t *testing.T) {
	t.Parallel()
	wake, looks := make(chan struct{}), 0
	slow := pace{part: 1, first: time.Hour, last: time.Hour}
	err := new(Core).wait(t.Context(), time.Minute, "wait", wake, slow, func(context.Context, bool) (bool, error) {
		if looks++; looks == 1 {
			close(wake)
		}
		return looks == 2, nil
	})
	require.NoError(t, err)
	require.Equal(t, 2, looks)
}

func TestWaitsForOneWorkflowShareAPoll(t *testing.T) {
	t.Parallel()
	e := endPolls{of: map[string]*endPoll{}}
	polls := make(chan context.Context, 3)
	end := make(chan struct{})
	poll := func(ctx context.Context) {
		polls <- ctx
		select {
		case <-ctx.Done():
		case <-end:
		}
	}
	first, leaveFirst := e.join("w", poll)
	second, leaveSecond := e.join("w", poll)
	ctx := <-polls
	leaveFirst()
	require.NoError(t, ctx.Err(), "another still waits")
	leaveSecond()
	<-ctx.Done()
	<-first
	<-second

	third, leave := e.join("w", poll)
	defer leave()
	<-polls
	close(end)
	<-third
	require.Empty(t, polls, "one poll for the first two, one for the third")
	require.Empty(t, e.of)
}

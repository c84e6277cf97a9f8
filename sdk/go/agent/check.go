package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"mainstay.dev/sdk/api"
)

// firstCheck is the longest wait before the first check of an instance.
const firstCheck = time.Second

// watchHealth checks an instance until its handler's context ends. It ends that itself when the instance counts as
// failing, unless the check says otherwise.
func (at *attempt) watchHealth(ctx context.Context, check *api.ServiceCheck) {
	interval := check.Interval.Or(api.DefaultCheckInterval)
	timer := time.NewTimer(min(interval, firstCheck))
	defer timer.Stop()
	state := api.CheckedHealth{Health: api.InstanceStarting}
	for {
		select {
		case <-ctx.Done():
			return
		case <-at.returned:
			return
		case <-timer.C:
		}
		err := at.check(ctx, check)
		if ctx.Err() != nil {
			return
		}
		state = check.Checked(state, err == nil, time.Now())
		at.setHealth(state)
		if state.Health == api.InstanceFailing && check.OnUnhealthy != api.KeepFailing {
			at.log().Warn("The instance is not healthy: stopping the attempt", "failed_checks", state.Failed, "error", err)
			at.cancel(fmt.Errorf("%w: %d checks in a row failed, the last one: %w", ErrUnhealthy, state.Failed, err))
			return
		}
		timer.Reset(interval)
	}
}

// setHealth makes the next poll report a new health, and sends one soon.
func (at *attempt) setHealth(now api.CheckedHealth) {
	at.run.mu.Lock()
	changed := at.health != now.Health || at.healthTurns != now.Turns
	if at.health != now.Health {
		at.healthChanges++
	}
	at.health, at.healthTurns = now.Health, now.Turns
	at.run.mu.Unlock()
	if changed {
		at.run.pollWithin(0)
	}
}

// check tries once whether the instance is well.
func (at *attempt) check(ctx context.Context, c *api.ServiceCheck) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout.Or(api.DefaultCheckTimeout))
	defer cancel()
	switch {
	case c.HTTP != nil:
		return at.ask(c.HTTP.Port, c.HTTP.Address, func(host string) error { return checkHTTP(ctx, host, c.HTTP.Path) })
	case c.TCP != nil:
		return at.ask(c.TCP.Port, c.TCP.Address, func(host string) error {
			connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", host)
			if err != nil {
				return err
			}
			return connection.Close()
		})
	case at.run.agent.handlers[ExecType] == nil:
		return errors.New("this agent runs no commands, so it cannot check with one")
	}
	_, err := runCommand(ctx, ExecPayload{Command: c.Command}, &Task{}, CommandEnvironment())
	return err
}

// ask tries the addresses at which the instance listens, until one is well.
func (at *attempt) ask(port api.ServicePort, address string, try func(host string) error) error {
	addresses, err := at.whereToAsk(port, address)
	if err != nil {
		return err
	}
	var errs []error
	for _, a := range addresses {
		err := try(net.JoinHostPort(a.String(), string(port)))
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// errNoHTTP does not say what was answered: a check may ask any port of its machine.
var errNoHTTP = errors.New("what listens there did not answer as HTTP does")

func checkHTTP(ctx context.Context, host, path string) error {
	if path == "" {
		path = "/"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+path, nil)
	if err != nil {
		return err
	}
	answer, err := checks.Do(request)
	if _, network := errors.AsType[*net.OpError](err); err != nil && !network && ctx.Err() == nil {
		return errNoHTTP // the error of net/http has what came instead
	}
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, maxExecOutput))
	_ = answer.Body.Close()
	if answer.StatusCode < 200 || answer.StatusCode > 399 {
		return fmt.Errorf("the answer's status is %d", answer.StatusCode)
	}
	return nil
}

// checks asks instances. A redirection is an answer, and no proxy stands between.
var checks = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

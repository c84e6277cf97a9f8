package agent

import (
	"context"
	"net/http"
	"net/url"

	"mainstay.dev/sdk/backoff"
	"mainstay.dev/sdk/protocol"
)

// Session is what a supervisor of the process needs for ProveDeath. Whoever has its token can end the session.
type Session struct {
	// HubURLs are the hubs, the session's first.
	HubURLs []string `json:"hub_urls"`
	Token   string   `json:"token"`
}

func (r *run) reportSession(hub int, token string) {
	if report := r.agent.options.OnSession; report != nil {
		urls := r.client.urls
		report(Session{HubURLs: append(urls[hub:len(urls):len(urls)], urls[:hub]...), Token: token})
	}
}

// ProveDeath reports to a hub that the process of a session has ended, with all that it had started, so that nothing
// waits for its leases. how describes the end. The options are those of the agent. It tries one hub after the other
// until one answers or the context ends.
func ProveDeath(ctx context.Context, o Options, s Session, how string) error {
	o.HubURLs = s.HubURLs
	c := newClient(o)
	defer c.close()
	retry := backoff.Backoff{First: reconnectFirst, Limit: reconnectLimit}
	for {
		hub := c.current()
		err := c.send(ctx, c.calls, request{
			hub:     hub,
			method:  http.MethodDelete,
			path:    c.path(protocol.SessionPath, "") + "?died=" + url.QueryEscape(how),
			token:   s.Token,
			timeout: callTimeout,
		}, nil)
		if err == nil || isFinal(err) || ctx.Err() != nil {
			return err
		}
		c.rotate(hub)
		retry.Pause(ctx)
	}
}

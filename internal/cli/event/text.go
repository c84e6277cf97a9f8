package event

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/sdk/api"
)

// eventText is an event in a line for people: whom it is about, where, and why.
func eventText(e *api.CloudEvent) string {
	d := &e.Data
	var b strings.Builder
	add := func(format string, args ...any) { fmt.Fprintf(&b, format, args...) }
	switch what, _, _ := strings.Cut(shortType(e.Type), "."); what {
	case "task":
		add("%s", d.TaskID)
		if d.TaskType != "" {
			add(" (%s)", d.TaskType)
		}
		taskText(e, add)
	case "gap":
		add("events are missing")
		if d.Count > 0 {
			add(" (%d)", d.Count)
		}
	case "failover", "drain":
		add("%s", d.ID)
		if d.TargetAgentID != "" {
			add(" to %s", d.TargetAgentID)
		}
		switch {
		case what == "drain" && d.AgentID != "":
			add(" of %s", d.AgentID)
		case what == "drain":
			add(" of %d agents", d.Count)
		case e.Type == api.EventFailoverStarted && d.Of > 0:
			add(", %s under way", api.Count(d.Of, "task"))
		case d.Of > 0:
			add(", %d of %s moved", d.Count, api.Count(d.Of, "task"))
		}
	case "scaling":
		add("%s to %s", d.ID, api.Count(d.Count, "agent"))
	case "lane":
		if add("%s", d.Lane); d.Lane == "" {
			add("every lane")
		}
	case "brake":
		add("%s", cluster.BrakeHold{Hub: d.Hub}.Where())
		if d.Count > 0 {
			add(", %d agents vanished", d.Count)
		}
	case "run", "step":
		if add("%s", cmp.Or(d.TaskID, d.ID)); d.Job != "" {
			add(" of %s", d.Job)
		}
	default:
		if d.AgentID != "" {
			add("%s", d.AgentID)
		} else {
			add("%s", d.ID)
		}
		agentText(e, add)
	}
	switch {
	case d.Cluster == "":
	case b.Len() == 0:
		add("%s", d.Cluster)
	default:
		add(" in %s", d.Cluster)
	}
	if p := d.Progress; p != nil {
		add(": %d%%", p.Percent)
		for _, text := range []string{p.Step, p.Message} {
			if text != "" {
				add(" %s", text)
			}
		}
	}
	if d.Outcome != "" {
		add(": %s", d.Outcome)
	}
	if d.Reason != "" {
		add(": %s", d.Reason)
	}
	return strings.TrimSpace(b.String())
}

func taskText(e *api.CloudEvent, add func(string, ...any)) {
	d := &e.Data
	ended := d.AttemptEnd != "" && d.AttemptEnd != api.AttemptCompleted
	switch {
	case ended:
		add(", attempt %d %s", d.Attempt, strings.ReplaceAll(string(d.AttemptEnd), "_", " "))
	case d.Attempt > 1:
		add(", attempt %d", d.Attempt)
	}
	switch {
	case d.AgentID == "":
	case e.Type == api.EventTaskQueued && !ended:
		add(" for %s", d.AgentID)
	default:
		add(" on %s", d.AgentID)
	}
	if d.PreviousAgentID != "" {
		add(", before on %s", d.PreviousAgentID)
	}
	if d.NextAttemptAt != nil {
		add(", next at %s", app.Clock(*d.NextAttemptAt))
	}
}

func agentText(e *api.CloudEvent, add func(string, ...any)) {
	d := &e.Data
	if e.Type == api.EventTargetMoved && d.AgentID != "" {
		if d.ID != "" {
			add(" has %s", d.ID)
		} else {
			add(" has %d more targets", d.Count)
		}
	}
	if d.PreviousAgentID != "" {
		add(", before %s", d.PreviousAgentID)
	}
	if len(d.Shards) > 0 {
		numbers := make([]string, len(d.Shards))
		for i, shard := range d.Shards {
			numbers[i] = strconv.Itoa(shard)
		}
		word := "shards"
		if len(numbers) == 1 {
			word = "shard"
		}
		add(", %s %s", word, strings.Join(numbers, " "))
	}
	if d.Level != "" {
		add(" is %s", d.Level)
	}
	if e.Type == api.EventLoadReduced {
		add(" to %s", api.Count(d.Count, "slot"))
	}
	switch e.Type {
	case api.EventAgentJoined, api.EventAgentMoved, api.EventAgentRecovered, api.EventAgentReplaced:
		add(" (epoch %d, hub %s)", d.Epoch, d.Hub)
	case api.EventLeaderElected:
		add(" (epoch %d)", d.Epoch)
	}
}

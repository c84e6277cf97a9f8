package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/sdk/api"
)

func printCluster(a *app.App, k *api.Cluster) error {
	lines := [][2]any{{"Cluster", k.Name}, {"Status", k.Status}, {"Paused", pauseText(a, k.Paused)}}
	add := func(name string, value any) { lines = append(lines, [2]any{name, value}) }
	for i := range k.PausedLanes {
		add("Paused lane", k.PausedLanes[i].Lane+" "+pauseText(a, &k.PausedLanes[i].Pause))
	}
	for _, b := range k.BrakeHolds {
		add("Brake holds", fmt.Sprintf("since %s at %s: %d agents lost; their failovers wait until they are back, or: "+
			"mainstay cluster release-brake %s", a.Ago(&b.Since), cluster.BrakeHold{Hub: b.Hub}.Where(), b.Lost, k.Name))
	}
	add("Agents", fmt.Sprintf("%d healthy of %d (min %d, desired %d, max %d)", k.HealthyAgentCount, k.AgentCount,
		k.MinAgents, k.DesiredAgents, k.MaxAgents))
	add("Mode", k.ReplicationMode)
	if k.Shards > 0 {
		add("Shards", shardText(k.Shards, k.ShardOwners))
	}
	if k.TargetCount > 0 {
		add("Targets", fmt.Sprintf("%d; see them with: mainstay cluster targets %s", k.TargetCount, k.Name))
	}
	add("Selection", k.Selection)
	add("Role lease", k.RoleLease)
	if k.ManualElection {
		add("Elections", "off: a lost leader keeps its seat until it is back, or a person acts")
	}
	add("Transfer timeout", k.TransferTimeout)
	if d := k.TaskDefaults; d != (api.TaskDefaults{}) {
		words := fmt.Sprintf("%d attempts, %d transfers, expire after %s, %s", d.MaxAttempts, d.MaxTransfers,
			app.Roughly(d.ExpiresIn.Std()), d.RetrySafety)
		if d.StopGrace != nil {
			words += fmt.Sprintf(", %s to stop", d.StopGrace)
		}
		if d.DisconnectGrace != nil {
			words += fmt.Sprintf(", held %s for an agent out of touch", d.DisconnectGrace)
		}
		add("Tasks", words+"; where a task does not say")
	}
	add("Dead letters", "kept for "+app.Roughly(k.DeadLetterRetention.Std()))
	brake := "off"
	if k.Brake.Share < 1 {
		brake = fmt.Sprintf("when at least %d and more than %.4g%% of the agents vanish within %s", k.Brake.MinLost,
			100*k.Brake.Share, k.Brake.Window)
	}
	add("Brake", brake)
	if k.SelfHealing.Mode != "" {
		add("Healing", fmt.Sprintf("%s, every %s, after %s of trouble", k.SelfHealing.Mode,
			k.SelfHealing.CycleInterval, k.SelfHealing.Patience))
	}
	leader := k.Leader
	if leader == "" && k.ReplicationMode == api.ActivePassive {
		leader = "nobody"
	}
	var weights []string
	for _, tenant := range slices.Sorted(maps.Keys(k.TenantWeights)) {
		weights = append(weights, fmt.Sprintf("%s=%g", tenant, k.TenantWeights[tenant]))
	}
	return a.Facts(append(lines, [][2]any{
		{"Only tenants", k.Tenants}, {"Tenant weights", weights}, {"Leader", leader}, {"Standbys", k.Standbys},
		{"Target group", k.TargetGroup}, {"Created", k.CreatedAt}, {"Revision", k.Revision},
	}...))
}

// pausedText says in a list which parts of a cluster are paused.
func pausedText(a *app.App, k *api.Cluster) string {
	if k.Paused != nil {
		return pauseText(a, k.Paused)
	}
	if n := len(k.PausedLanes); n == 1 {
		return "lane " + k.PausedLanes[0].Lane
	} else if n > 1 {
		return fmt.Sprintf("%d lanes", n)
	}
	return ""
}

// shardText says who owns which shards: "16: a-1 owns 0-7; nobody owns 8-15".
func shardText(n int, owners []api.ShardOwner) string {
	shards := map[string][]int{}
	for _, s := range owners {
		shards[s.Owner] = append(shards[s.Owner], s.Shard)
	}
	var parts []string
	for _, owner := range slices.Sorted(maps.Keys(shards)) {
		if owner != "" {
			parts = append(parts, owner+" owns "+ranges(shards[owner]))
		}
	}
	if free := shards[""]; len(free) > 0 {
		parts = append(parts, "nobody owns "+ranges(free))
	}
	text := strconv.Itoa(n)
	if len(parts) > 0 {
		text += ": " + strings.Join(parts, "; ")
	}
	return text
}

// ranges writes growing numbers as "0-3, 5".
func ranges(numbers []int) string {
	var parts []string
	for i := 0; i < len(numbers); {
		j := i
		for j+1 < len(numbers) && numbers[j+1] == numbers[j]+1 {
			j++
		}
		part := strconv.Itoa(numbers[i])
		if j > i {
			part += "-" + strconv.Itoa(numbers[j])
		}
		parts, i = append(parts, part), j+1
	}
	return strings.Join(parts, ", ")
}

package fleet

// ClusterStatus says whether a cluster has the agents it should have.
type ClusterStatus string

// The cluster statuses.
const (
	ClusterHealthy  ClusterStatus = "healthy"  // as many online agents as desired
	ClusterDegraded ClusterStatus = "degraded" // fewer than desired, or one is offline or suspect while no count is set
	ClusterCritical ClusterStatus = "critical" // fewer than the minimum, or none at all
	ClusterUnknown  ClusterStatus = "unknown"  // no worker answered for the cluster
)

// HealthyCount is the number of members that are online and not suspected.
func (c *Cluster) HealthyCount() int { return count(c.Members, hasStatus(AgentOnline)) }

func hasStatus(s AgentStatus) func(*Member) bool {
	return func(m *Member) bool { return m.Status == s }
}

// Status judges the cluster by its healthy members. A cluster that never had an agent and wants none is healthy.
func (c *Cluster) Status() ClusterStatus {
	healthy, wanted := c.HealthyCount(), c.Wanted()
	switch {
	case healthy < c.Config.MinAgents:
		return ClusterCritical
	case healthy == 0 && (len(c.Members) > 0 || wanted > 0):
		return ClusterCritical
	case healthy < wanted:
		return ClusterDegraded
	case wanted == 0 && healthy < len(c.Members)-count(c.Members, hasStatus(AgentMaintenance)):
		return ClusterDegraded
	}
	return ClusterHealthy
}

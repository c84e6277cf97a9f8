// Package activities holds the activities that call anything but agents, one struct for each set of dependencies. Its
// methods are the activities of their names. The activities that call agents run in hubs.
package activities

import (
	"github.com/prometheus/client_golang/prometheus"
	"go.temporal.io/sdk/client"

	"mainstay.dev/mainstay/store"
)

// Control does what workflows ask of Temporal and of other workflows.
type Control struct {
	Client    client.Client
	Namespace string
	// Lost counts the hubs that were announced; nil: nobody counts.
	Lost prometheus.Counter
	// Cycles measures the healing cycles; nil: nobody measures.
	Cycles *HealingMetrics
}

func (a *Control) store() store.Store { return store.Store{Client: a.Client, Namespace: a.Namespace} }

func (a *Control) clusters() store.Clusters { return a.store().Clusters() }

func (a *Control) tasks() store.Tasks { return a.store().Tasks() }

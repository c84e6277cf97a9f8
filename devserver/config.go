package devserver

import (
	"net"
	"strconv"
	"time"

	"go.temporal.io/server/common/cluster"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/primitives"
)

const (
	clusterName = "active"
	mainName    = "main"
	visibleName = "visibility"
)

// internalHost is where the ports listen that only Temporal's own parts use, also where the frontend is for others.
const internalHost = "127.0.0.1"

// serverConfig is the static configuration: one cluster of one node. It sets no HTTPPort, so Temporal has no HTTP API:
// a web page could start workflows there, because it looks neither at Host nor at Origin.
func serverConfig(o Options, ports servicePorts, store *Store) *config.Config {
	address := net.JoinHostPort(o.Host, strconv.Itoa(o.Port))
	var c config.Config
	c.Global.Membership.MaxJoinDuration = 30 * time.Second
	c.Global.Membership.BroadcastAddress = internalHost
	c.Persistence = config.Persistence{
		DefaultStore: mainName, VisibilityStore: visibleName, NumHistoryShards: store.Shards,
		DataStores: map[string]config.DataStore{mainName: {SQL: store.Main}, visibleName: {SQL: store.Visibility}},
	}
	c.ClusterMetadata = &cluster.Config{
		FailoverVersionIncrement: 10, MasterClusterName: clusterName, CurrentClusterName: clusterName,
		ClusterInformation: map[string]cluster.ClusterInformation{clusterName: {
			Enabled: true, InitialFailoverVersion: 1, RPCAddress: address,
		}},
	}
	c.DCRedirectionPolicy.Policy = "noop"
	c.Archival.History.State, c.Archival.Visibility.State = "disabled", "disabled"
	c.NamespaceDefaults.Archival.History.State, c.NamespaceDefaults.Archival.Visibility.State = "disabled", "disabled"
	c.PublicClient.HostPort = address
	service := func(host string, grpc int) config.Service {
		return config.Service{RPC: config.RPC{GRPCPort: grpc, BindOnIP: host}}
	}
	c.Services = map[string]config.Service{
		string(primitives.FrontendService): service(o.Host, o.Port),
		string(primitives.HistoryService):  service(internalHost, ports.history),
		string(primitives.MatchingService): service(internalHost, ports.matching),
		string(primitives.WorkerService):   service(internalHost, ports.worker),
	}
	return &c
}

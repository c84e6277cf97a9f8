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

// serverConfig is the static configuration: one cluster of one node.
func serverConfig(o Options, ports servicePorts, store *Store) *config.Config {
	address := net.JoinHostPort(o.Host, strconv.Itoa(o.Port))
	var c config.Config
	c.Global.Membership.MaxJoinDuration = 30 * time.Second
	c.Global.Membership.BroadcastAddress = o.Host
	c.Persistence = config.Persistence{
		DefaultStore: mainName, VisibilityStore: visibleName, NumHistoryShards: store.Shards,
		DataStores: map[string]config.DataStore{mainName: {SQL: store.Main}, visibleName: {SQL: store.Visibility}},
	}
	c.ClusterMetadata = &cluster.Config{
		FailoverVersionIncrement: 10, MasterClusterName: clusterName, CurrentClusterName: clusterName,
		ClusterInformation: map[string]cluster.ClusterInformation{clusterName: {
			Enabled: true, InitialFailoverVersion: 1, RPCAddress: address, HTTPAddress: net.JoinHostPort(o.Host, strconv.Itoa(ports.frontendHTTP)),
		}},
	}
	c.DCRedirectionPolicy.Policy = "noop"
	c.Archival.History.State, c.Archival.Visibility.State = "disabled", "disabled"
	c.NamespaceDefaults.Archival.History.State, c.NamespaceDefaults.Archival.Visibility.State = "disabled", "disabled"
	c.PublicClient.HostPort = address
	service := func(grpc int) config.Service {
		return config.Service{RPC: config.RPC{GRPCPort: grpc, BindOnIP: o.Host}}
	}
	frontend := service(o.Port)
	frontend.RPC.HTTPPort = ports.frontendHTTP
	c.Services = map[string]config.Service{
		string(primitives.FrontendService): frontend,
		string(primitives.HistoryService):  service(ports.history),
		string(primitives.MatchingService): service(ports.matching),
		string(primitives.WorkerService):   service(ports.worker),
	}
	return &c
}

package devserver

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"go.temporal.io/server/common/cluster"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/dynamicconfig"
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
	if o.Key != "" { // clients come in by the front
		o.Host, o.Port = internalHost, ports.frontend
	}
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
	service := func(host string, grpc int) config.Service {
		return config.Service{RPC: config.RPC{GRPCPort: grpc, BindOnIP: host}}
	}
	c.Services = map[string]config.Service{
		string(primitives.FrontendService): service(o.Host, o.Port),
		string(primitives.HistoryService):  service(internalHost, ports.history),
		string(primitives.MatchingService): service(internalHost, ports.matching),
		string(primitives.WorkerService):   service(internalHost, ports.worker),
	}
	if o.Key == "" {
		c.PublicClient.HostPort = address
	} else {
		c.Services[string(primitives.InternalFrontendService)] = service(internalHost, ports.internal)
	}
	return &c
}

// PortInUseError says that the port of Temporal's frontend is taken, and how to choose another.
type PortInUseError struct {
	Address string // host:port
	Err     error
}

func (e *PortInUseError) Error() string {
	return fmt.Sprintf("Temporal cannot listen on %s: it is in use by another process. "+
		"Stop that process, or choose another address with --temporal", e.Address)
}

// Unwrap returns the listener's error.
func (e *PortInUseError) Unwrap() error { return e.Err }

// servicePorts are the ports that only Temporal's own parts use.
type servicePorts struct{ history, matching, worker, internal, frontend int }

// choosePorts finds distinct ports, a free one where none is chosen: all are held open until the last is found. Its
// error is a *PortInUseError when the frontend's port is taken.
func choosePorts(o *Options) (ports servicePorts, err error) {
	frontend, err := listen(o.Host, o.Port)
	if err != nil {
		return ports, &PortInUseError{Address: net.JoinHostPort(o.Host, strconv.Itoa(o.Port)), Err: err}
	}
	defer frontend.Close()
	o.Port = frontend.Addr().(*net.TCPAddr).Port
	for _, port := range []*int{&ports.history, &ports.matching, &ports.worker, &ports.internal, &ports.frontend} {
		l, err := listen(internalHost, 0)
		if err != nil {
			return ports, fmt.Errorf("find a free port on %s: %w", internalHost, err)
		}
		defer l.Close()
		*port = l.Addr().(*net.TCPAddr).Port
	}
	return ports, nil
}

// lowPorts are below those that systems give to connections (Linux: from 32768). One of these could be taken by any
// connection between now and when Temporal listens on it, which ends the process.
const lowPorts, lowPortsEnd = 20000, 32768

// portsOfOne is how many ports a server takes, or a few more.
const portsOfOne = 8

// triedPorts counts the ports that this process has tried.
var triedPorts atomic.Uint32

// listen listens on a port, with 0 on a free one. Processes begin at different ones: two that start at once would else
// choose the same now and then, and Temporal ends the process that comes second.
func listen(host string, port int) (l net.Listener, err error) {
	if port != 0 {
		return net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	}
	for range 1000 {
		port = lowPorts + (os.Getpid()*portsOfOne+int(triedPorts.Add(1)))%(lowPortsEnd-lowPorts)
		if l, err = net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port))); err == nil {
			return l, nil
		}
	}
	return nil, err
}

// tuning is the dynamic configuration of the embedded server. docs/DEPLOYMENT.md says which of it operators of other
// servers want too.
func tuning() dynamicconfig.StaticClient {
	settings := []struct {
		key   dynamicconfig.Key
		value any
		why   string
	}{
		{dynamicconfig.TransferProcessorMaxPollRPS.Key(), 1000,
			"20 a second and shard by default, which costs about 45 ms at every hop of a workflow"},
		{dynamicconfig.TimerProcessorMaxPollRPS.Key(), 1000, "likewise for timers: backoffs and leases"},
		{dynamicconfig.OutboundProcessorMaxPollRPS.Key(), 200, "likewise for pushed cancellations"},
		{dynamicconfig.FrontendMaxConcurrentLongRunningRequestsPerInstance.Key(), 20_000,
			"every agent has a lane of its own, and so an open poll; 1200 by default"},
		{dynamicconfig.FrontendRPS.Key(), 100_000, "one tenant on its own machine needs no request limits"},
		{dynamicconfig.FrontendMaxNamespaceRPSPerInstance.Key(), 100_000, "as above"},
		{dynamicconfig.FrontendMaxNamespaceVisibilityRPSPerInstance.Key(), 1_000, "as above, for lists"},
		{dynamicconfig.HistoryRPS.Key(), 100_000, "as above"},
		{dynamicconfig.MatchingRPS.Key(), 100_000, "as above"},
		{dynamicconfig.SchedulerNamespaceStartWorkflowRPS.Key(), 100,
			"30 by default: when 100 schedules are due in one second, all others' are late by three"},
		{dynamicconfig.FrontendPersistenceMaxQPS.Key(), 100_000, "as above"},
		{dynamicconfig.HistoryPersistenceMaxQPS.Key(), 100_000, "as above"},
		{dynamicconfig.MatchingPersistenceMaxQPS.Key(), 100_000, "as above"},
		{dynamicconfig.MatchingNumTaskqueueReadPartitions.Key(), 1,
			"priority and fairness hold within one partition only"},
		{dynamicconfig.MatchingNumTaskqueueWritePartitions.Key(), 1, "as above"},
		{dynamicconfig.MatchingEnableFairness.Key(), true, "tenants share a lane fairly"},
		{dynamicconfig.TaskQueueInfoByBuildIdTTL.Key(), time.Second,
			"the queue view shows lanes as they are now; 5 s old by default"},
		{dynamicconfig.EnableCancelWorkerPollsOnShutdown.Key(), true,
			"a hub gives back the polls of a lane that nobody serves without losing a task"},
		{dynamicconfig.EnableCancelActivityWorkerCommand.Key(), true,
			"a cancelled task's agent hears at once, not with the next attempt heartbeat"},
		{dynamicconfig.WorkerCommandsEnabled.Key(), true, "as above"},
		{dynamicconfig.MemoSizeLimitWarn.Key(), 256 << 10,
			"the memo of the tokens is larger than the 2 kB of the default, and its warnings would hide others"},
		{dynamicconfig.TransferProcessorSchedulerWorkerCount.Key(), 8,
			"512 by default, for many databases; here they wait for one, and who submits waits behind them"},
		{dynamicconfig.TimerProcessorSchedulerWorkerCount.Key(), 8, "as above"},
		{dynamicconfig.VisibilityProcessorSchedulerWorkerCount.Key(), 2, "as above"},
		{dynamicconfig.HistoryCacheHostLevelMaxSize.Key(), 8_096, "bounds the memory of a long-lived process"},
	}
	values := dynamicconfig.StaticClient{}
	for _, s := range settings {
		values[s.key] = s.value
	}
	return values
}

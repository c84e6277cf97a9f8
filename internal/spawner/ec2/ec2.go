// Package ec2 starts agents as instances of Amazon EC2. All that it knows of them is in EC2: their tags name the agents
// and the spawner, so that the next process takes them over.
package ec2

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/spawner"
	"mainstay.dev/sdk/api"
)

const (
	// pause is the time between two looks at one instance, and lookEvery that between two looks at all.
	pause     = 2 * time.Second
	lookEvery = 10 * time.Second
	// callLimit bounds one request with what the SDK repeats of it.
	callLimit = 30 * time.Second
	// startLimit is how long an instance may take to run.
	startLimit = 90 * time.Second
	// goneLimit is how much longer than its grace an instance may take to end: AWS shuts its system down first.
	goneLimit = 2 * time.Minute
	// noticeTime is how long AWS leaves a spot instance after it has marked it.
	noticeTime = 2 * time.Minute
)

// Tags of an instance.
const (
	tagSpawner = "mainstay:spawner"
	tagAgent   = "mainstay:agent"
	tagCluster = "mainstay:cluster"
)

// Options describe a spawner of instances.
type Options struct {
	spawner.Options
	// Region is AWS's; empty: that of the environment or the profile, as the SDK finds them.
	Region string
	// LaunchTemplate is the id or name of a template for all other settings; empty: none. An empty version is the
	// template's default.
	LaunchTemplate, LaunchTemplateVersion string
	// InstanceType, Subnet, SecurityGroup and Profile are of instances whose cluster or template does not say.
	InstanceType, Subnet, SecurityGroup, Profile string
	// User is the image's user that the agent runs as; empty: root.
	User string
	// Pause is the time between two looks at an instance; 0 means 2 seconds.
	Pause time.Duration
	// Load changes how the SDK finds AWS and its credentials; nil: as AWS documents it.
	Load []func(*config.LoadOptions) error
}

// EC2 is a Spawner of instances. They live on when it ends.
type EC2 struct {
	o Options
	// The requests to AWS. With the client itself here, all its methods would be in the program: reflection finds them.
	runInstances       request[*awsec2.RunInstancesInput, *awsec2.RunInstancesOutput]
	terminateInstances request[*awsec2.TerminateInstancesInput, *awsec2.TerminateInstancesOutput]
	describeInstances  request[*awsec2.DescribeInstancesInput, *awsec2.DescribeInstancesOutput]
	describeSpots      request[*awsec2.DescribeSpotInstanceRequestsInput, *awsec2.DescribeSpotInstanceRequestsOutput]
	turns              spawner.Turns
	ends               spawner.Ends
	ran                map[string]bool // by instance: seen alive by Watch
}

// New makes a spawner. It does not call AWS, which may be away.
func New(o Options) (*EC2, error) {
	if err := o.Fill(); err != nil {
		return nil, err
	}
	o.Pause, o.User = cmp.Or(o.Pause, pause), cmp.Or(o.User, "root")
	load := o.Load
	if o.Region != "" {
		load = append(load, config.WithRegion(o.Region))
	}
	settings, err := config.LoadDefaultConfig(context.Background(), load...)
	if err == nil && settings.Region == "" {
		err = errors.New("no region is known: set spawner.ec2.region, or AWS_REGION")
	}
	if err != nil {
		return nil, fmt.Errorf("find AWS: %w", err)
	}
	api := awsec2.NewFromConfig(settings)
	return &EC2{o: o, ran: map[string]bool{}, runInstances: api.RunInstances, describeInstances: api.DescribeInstances,
		terminateInstances: api.TerminateInstances, describeSpots: api.DescribeSpotInstanceRequests}, nil
}

// Close implements the end of a spawner. The instances live on.
func (e *EC2) Close() {}

// Platform implements spawner.Spawner.
func (e *EC2) Platform() api.Platform { return api.PlatformEC2 }

// Spawn implements spawner.Spawner. It waits until the instance runs.
func (e *EC2) Spawn(ctx context.Context, spec cluster.SpawnSpec) (cluster.Spawned, error) {
	if err := spawner.CheckSpec(&spec); err != nil {
		return cluster.Spawned{}, err
	}
	release, err := e.turns.Take(ctx, spec.ID)
	if err != nil {
		return cluster.Spawned{}, err
	}
	defer release()
	instance, err := e.find(ctx, spec.ID)
	earlier := ""
	if err == nil && wasTerminated(instance) { // EC2 shows it for an hour; the agent is started anew
		earlier, instance = aws.ToString(instance.InstanceId), nil
	}
	if err == nil && instance == nil {
		err = e.run(ctx, &spec, earlier)
	}
	if err == nil {
		instance, err = e.awaitRunning(ctx, spec.ID, earlier)
	}
	if err != nil {
		return cluster.Spawned{}, err
	}
	return e.spawned(instance), nil
}

func (e *EC2) spawned(i *types.Instance) cluster.Spawned {
	return cluster.Spawned{ID: tag(i, tagAgent), Cluster: tag(i, tagCluster), Spawner: e.o.Name,
		Platform: api.PlatformEC2, Handle: aws.ToString(i.InstanceId), Host: aws.ToString(i.PrivateDnsName),
		StartedAt: aws.ToTime(i.LaunchTime).UTC()}
}

func tag(i *types.Instance, key string) string {
	for _, t := range i.Tags {
		if aws.ToString(t.Key) == key {
			return aws.ToString(t.Value)
		}
	}
	return ""
}

func stateOf(i *types.Instance) types.InstanceStateName {
	if i.State == nil {
		return ""
	}
	return i.State.Name
}

// instances are those of this spawner that EC2 still shows, ended ones too; filters choose among them.
func (e *EC2) instances(ctx context.Context, filters ...types.Filter) (all []types.Instance, err error) {
	in := &awsec2.DescribeInstancesInput{Filters: append(filters, filter("tag:"+tagSpawner, e.o.Name))}
	for {
		page, err := e.describeInstances.send(ctx, "list the instances", in)
		if err != nil {
			return nil, err
		}
		for _, r := range page.Reservations {
			all = append(all, r.Instances...)
		}
		if in.NextToken = page.NextToken; aws.ToString(in.NextToken) == "" {
			return all, nil
		}
	}
}

func filter(name string, values ...string) types.Filter {
	return types.Filter{Name: &name, Values: values}
}

// find returns the instance of an agent, the newest where it was started anew; nil when EC2 shows none.
func (e *EC2) find(ctx context.Context, id string) (newest *types.Instance, err error) {
	all, err := e.instances(ctx, filter("tag:"+tagAgent, id))
	for n := range all {
		if newest == nil || aws.ToTime(all[n].LaunchTime).After(aws.ToTime(newest.LaunchTime)) {
			newest = &all[n]
		}
	}
	return newest, err
}

// wasTerminated reports whether an instance has ended because EC2 was asked for that.
func wasTerminated(i *types.Instance) bool {
	return i != nil && stateOf(i) == types.InstanceStateNameTerminated && i.StateReason != nil &&
		aws.ToString(i.StateReason.Code) == "Client.UserInitiatedShutdown"
}

// run asks for the instance. EC2 makes one for a client token, however often it is asked. earlier is the agent's
// terminated instance.
func (e *EC2) run(ctx context.Context, spec *cluster.SpawnSpec, earlier string) error {
	in, err := e.describe(spec, earlier)
	if err != nil {
		return err
	}
	_, err = e.runInstances.send(ctx, "run the instance", in)
	if isAnswer(err, "IdempotentParameterMismatch") {
		return nil // an earlier try has made it, with another join token
	}
	if err == nil {
		e.o.Logger.Sugar().Infow("An agent was started", "agent", spec.ID, "cluster", spec.Cluster)
	}
	return err
}

// awaitRunning looks for an instance until it runs. EC2 does not show a new one at once.
func (e *EC2) awaitRunning(ctx context.Context, id, earlier string) (*types.Instance, error) {
	for end := time.Now().Add(startLimit); ; {
		instance, err := e.find(ctx, id)
		state := types.InstanceStateNamePending
		if instance != nil && aws.ToString(instance.InstanceId) != earlier {
			state = stateOf(instance)
		}
		switch {
		case err != nil:
			return nil, err
		case state == types.InstanceStateNameRunning:
			return instance, nil
		case state != types.InstanceStateNamePending:
			return nil, fmt.Errorf("%w: %s", spawner.ErrRefused, reason(instance))
		case time.Now().After(end):
			return nil, fmt.Errorf("%w: its instance does not run after %s", spawner.ErrRefused, startLimit)
		}
		if err := spawner.Pause(ctx, e.o.Pause); err != nil {
			return nil, err
		}
	}
}

// reason says in words why an instance does not run any more.
func reason(i *types.Instance) string {
	words := "its instance is " + string(stateOf(i))
	if i.StateReason != nil {
		words += spawner.LastWords(cmp.Or(aws.ToString(i.StateReason.Message), aws.ToString(i.StateReason.Code)))
	}
	return words
}

// again are AWS's answers after which another try may help soon. All other answers are spawner.ErrRefused, such as a
// lack of capacity, a quota or a missing right.
var again = map[string]bool{
	"RequestLimitExceeded": true, "Throttling": true, "ThrottlingException": true, "Unavailable": true,
	"ServiceUnavailable": true, "InternalError": true, "InternalFailure": true, "RequestExpired": true,
}

// request is one of the SDK's methods.
type request[In, Out any] func(context.Context, In, ...func(*awsec2.Options)) (Out, error)

// send sends the request. Its error has AWS's own words.
func (r request[In, Out]) send(ctx context.Context, what string, in In) (out Out, err error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	out, err = r(ctx, in)
	answer := smithy.APIError(nil)
	switch {
	case err == nil:
		return out, nil
	case !errors.As(err, &answer):
		return out, fmt.Errorf("%s: %w", what, err)
	}
	err = &answerError{APIError: answer, what: what}
	if !again[answer.ErrorCode()] {
		err = fmt.Errorf("%w: %w", spawner.ErrRefused, err)
	}
	return out, err
}

// answerError is an answer of AWS without the SDK's words around it.
type answerError struct {
	smithy.APIError
	what string
}

func (a *answerError) Error() string {
	return a.what + ": AWS answers " + a.ErrorCode() + spawner.LastWords(a.ErrorMessage())
}

func isAnswer(err error, code string) bool {
	var answer *answerError
	return errors.As(err, &answer) && answer.ErrorCode() == code
}

// Terminate implements spawner.Spawner. AWS shuts the instance's system down, and it returns when the instance is off.
func (e *EC2) Terminate(ctx context.Context, id string, _ bool) error {
	if api.ValidateID("id", id) != nil {
		return nil
	}
	release, err := e.turns.Take(ctx, id)
	if err != nil {
		return err
	}
	defer release()
	instance, err := e.find(ctx, id)
	if err != nil || instance == nil || stateOf(instance) == types.InstanceStateNameTerminated {
		return err
	}
	defer e.ends.Ask(id)()
	_, err = e.terminateInstances.send(ctx, "terminate the instance",
		&awsec2.TerminateInstancesInput{InstanceIds: []string{aws.ToString(instance.InstanceId)}})
	if err != nil && !isAnswer(err, "InvalidInstanceID.NotFound") {
		return err
	}
	limit := e.o.StopGrace + goneLimit
	for end := time.Now().Add(limit); ; {
		instance, err := e.find(ctx, id)
		switch {
		case err != nil:
			return err
		case instance == nil:
			return nil
		case stateOf(instance) == types.InstanceStateNameTerminated:
			e.ends.Mark(aws.ToString(instance.InstanceId))
			return nil
		case time.Now().After(end):
			return fmt.Errorf("the instance of %s is %s after %s", id, stateOf(instance), limit)
		}
		if err := spawner.Pause(ctx, e.o.Pause); err != nil {
			return err
		}
	}
}

// List implements spawner.Spawner.
func (e *EC2) List(ctx context.Context) ([]cluster.Spawned, error) {
	all, err := e.instances(ctx, filter("instance-state-name", "pending", "running"))
	if err != nil {
		return nil, err
	}
	list := make([]cluster.Spawned, len(all))
	for i := range all {
		list[i] = e.spawned(&all[i])
	}
	spawner.SortSpawned(list)
	return list, nil
}

// Watch implements spawner.Watcher. It also gives notice of spot instances that AWS takes back, and terminates those
// that somebody has stopped. An end that happens while no spawner runs is not reported.
func (e *EC2) Watch(ctx context.Context, ended func(api.SpawnEnd)) {
	spawner.Look(ctx, e.o.Logger, "AWS", min(lookEvery, 5*e.o.Pause), func() error { return e.look(ctx, ended) })
}

func (e *EC2) look(ctx context.Context, ended func(api.SpawnEnd)) error {
	all, err := e.instances(ctx)
	if err != nil {
		return err
	}
	here, spot := map[string]bool{}, map[string]*types.Instance{}
	for n := range all {
		i := &all[n]
		id, handle := tag(i, tagAgent), aws.ToString(i.InstanceId)
		here[handle] = true
		switch stateOf(i) {
		case types.InstanceStateNameTerminated, types.InstanceStateNameStopped:
			if e.ran[handle] && e.ends.Take(id, handle) {
				e.o.Logger.Sugar().Infow("An agent's instance has ended", "agent", id, "reason", reason(i))
				ended(api.SpawnEnd{AgentID: id, Cluster: tag(i, tagCluster), At: time.Now(), Reason: reason(i),
					Gone: true})
			}
			delete(e.ran, handle)
			if stateOf(i) == types.InstanceStateNameStopped {
				if err := e.Terminate(ctx, id, false); err != nil {
					return err
				}
			}
			continue
		}
		e.ran[handle] = true
		if request := aws.ToString(i.SpotInstanceRequestId); request != "" {
			here[request], spot[request] = true, i
		}
	}
	e.ends.Retain(here)
	return e.giveNotice(ctx, spot, ended)
}

// giveNotice reports the instances that AWS has marked to take back; spot are those of this spawner by their requests.
func (e *EC2) giveNotice(ctx context.Context, spot map[string]*types.Instance, ended func(api.SpawnEnd)) error {
	if len(spot) == 0 {
		return nil
	}
	marked, err := e.describeSpots.send(ctx, "list the spot instances that AWS takes back",
		&awsec2.DescribeSpotInstanceRequestsInput{Filters: []types.Filter{
			filter("status-code", "marked-for-termination", "marked-for-stop")}})
	if err != nil {
		return err
	}
	for n := range marked.SpotInstanceRequests {
		r := &marked.SpotInstanceRequests[n]
		request := aws.ToString(r.SpotInstanceRequestId)
		i := spot[request]
		if i == nil || r.Status == nil || !e.ends.Take(tag(i, tagAgent), request) {
			continue
		}
		end := api.SpawnEnd{AgentID: tag(i, tagAgent), Cluster: tag(i, tagCluster), Notice: true,
			At: aws.ToTime(r.Status.UpdateTime).Add(noticeTime), Reason: "AWS takes its spot instance back"}
		e.o.Logger.Sugar().Infow("AWS takes an agent's spot instance back", "agent", end.AgentID, "at", end.At)
		ended(end)
	}
	return nil
}

package ec2

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/spawner"
	"mainstay.dev/sdk/api"
)

func spawnerOf(t *testing.T, s *server) *EC2 {
	t.Helper()
	made := 0
	e, err := New(Options{Region: "eu-central-1", InstanceType: "c6g.large", SecurityGroup: "sg-1", Profile: "agents",
		LaunchTemplate: "agents", Pause: 5 * time.Millisecond,
		Load: []func(*config.LoadOptions) error{
			config.WithBaseEndpoint(s.url), config.WithRetryer(func() aws.Retryer { return aws.NopRetryer{} }),
			config.WithCredentialsProvider(aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
				return aws.Credentials{AccessKeyID: "AKID", SecretAccessKey: "secret"}, nil
			})),
		},
		Options: spawner.Options{Name: "cloud", Image: "ami-1", HubURLs: []string{"http://hub:8080"},
			JoinToken: func(spec cluster.SpawnSpec) (string, error) {
				made++
				return fmt.Sprintf("token-%d-of-%s", made, spec.ID), nil
			}}})
	require.NoError(t, err)
	return e
}

var spec = cluster.SpawnSpec{ID: "c-1", Cluster: "c", EC2: api.EC2Spawn{Spot: true}}

// TestAnInstanceIsAnAgent loses an answer, and starts again as the caller does: in the same process, or in the next.
func TestAnInstanceIsAnAgent(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		lost string
		dies bool
	}{{}, {lost: "RunInstances"}, {lost: "RunInstances", dies: true}, {lost: "DescribeInstances", dies: true}} {
		t.Run(fmt.Sprint(c.lost, c.dies), func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			s.loses = c.lost
			e := spawnerOf(t, s)
			spawned, err := e.Spawn(t.Context(), spec)
			if c.lost != "" {
				require.Error(t, err)
				require.NotErrorIs(t, err, spawner.ErrRefused)
				if c.dies {
					e = spawnerOf(t, s)
				}
				spawned, err = e.Spawn(t.Context(), spec)
			}
			require.NoError(t, err)
			again, err := e.Spawn(t.Context(), spec)
			require.NoError(t, err)
			require.Equal(t, spawned, again)
			require.Equal(t, []string{"c-1", "c", "cloud", "i-1", "ip-10-0-0-1"},
				[]string{spawned.ID, spawned.Cluster, spawned.Spawner, spawned.Handle, spawned.Host})
			require.Len(t, s.runs, 1)
			in := s.runs[0]
			data, err := base64.StdEncoding.DecodeString(in["UserData"].(string))
			require.NoError(t, err)
			token := base64.StdEncoding.EncodeToString([]byte("token-1-of-c-1"))
			require.Contains(t, string(data), token)
			delete(in, "UserData")
			require.NotContains(t, fmt.Sprint(in), token, "the token is in no tag")
			require.Equal(t, []any{"ami-1", "c6g.large", "terminate", "required", "spot", "agents"},
				[]any{in["ImageId"], in["InstanceType"], in["InstanceInitiatedShutdownBehavior"],
					in["MetadataOptions"].(map[string]any)["HttpTokens"],
					in["InstanceMarketOptions"].(map[string]any)["MarketType"],
					in["LaunchTemplate"].(map[string]any)["LaunchTemplateName"]})
			require.Len(t, in["TagSpecifications"], 3)
			list, err := e.List(t.Context())
			require.NoError(t, err)
			require.Equal(t, []cluster.Spawned{spawned}, list)
			require.NoError(t, e.Terminate(t.Context(), "c-1", true))
			require.Equal(t, "terminated", nameOf(s.instance("i-1")))
			require.NoError(t, e.Terminate(t.Context(), "c-1", true), "what has ended has ended")
			list, err = e.List(t.Context())
			require.NoError(t, err)
			require.Empty(t, list)

			s.set(func() { s.loses = c.lost })
			restarted, err := e.Spawn(t.Context(), spec)
			if err != nil { // the answer was lost
				require.NotErrorIs(t, err, spawner.ErrRefused)
				restarted, err = e.Spawn(t.Context(), spec)
			}
			require.NoError(t, err)
			require.Equal(t, "i-2", restarted.Handle, "EC2 still shows its first instance, and knows the first client token")
			require.Len(t, s.runs, 2)
			s.set(func() { s.end(s.instance("i-2"), "terminated", "Client.InstanceInitiatedShutdown: It ended") })
			_, err = e.Spawn(t.Context(), spec)
			require.ErrorIs(t, err, spawner.ErrRefused, "an instance that ended by itself is not started anew")
			require.ErrorContains(t, err, "It ended")
		})
	}
}

func TestWhatAWSSaysIsWhyNothingStarts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		refuses, fate, want string
		again               bool
	}{
		{refuses: "InsufficientInstanceCapacity There is no Spot capacity available that matches your request.",
			want: "refused: run the instance: AWS answers InsufficientInstanceCapacity: There is no Spot capacity available that matches your request."},
		{refuses: "VcpuLimitExceeded You have requested more vCPU capacity than your current limit of 32 allows.",
			want: "refused: run the instance: AWS answers VcpuLimitExceeded: You have requested more vCPU capacity than your current limit of 32 allows."},
		{refuses: "UnauthorizedOperation You are not authorized to perform this operation.",
			want: "refused: run the instance: AWS answers UnauthorizedOperation: You are not authorized to perform this operation."},
		{refuses: "RequestLimitExceeded Request limit exceeded.", again: true,
			want: "run the instance: AWS answers RequestLimitExceeded: Request limit exceeded."},
		{fate: "Client.VolumeLimitExceeded: Volume limit exceeded",
			want: "refused: its instance is terminated: Client.VolumeLimitExceeded: Volume limit exceeded"},
	} {
		t.Run(c.want, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			s.refuses["RunInstances"], s.fate = c.refuses, c.fate
			_, err := spawnerOf(t, s).Spawn(t.Context(), spec)
			require.EqualError(t, err, c.want)
			require.Equal(t, c.again, !errors.Is(err, spawner.ErrRefused))
		})
	}
}

func TestAllPagesOfInstancesAreRead(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.page = 2
	e := spawnerOf(t, s)
	for i := range 5 {
		_, err := e.Spawn(t.Context(), cluster.SpawnSpec{ID: "c-" + strconv.Itoa(i), Cluster: "c"})
		require.NoError(t, err)
	}
	list, err := e.List(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 5)
}

func TestEndsAndNoticesOfInstancesAreReported(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	e := spawnerOf(t, s)
	for _, id := range []string{"c-1", "c-2", "c-3"} {
		_, err := e.Spawn(t.Context(), cluster.SpawnSpec{ID: id, Cluster: "c", EC2: spec.EC2})
		require.NoError(t, err)
	}
	reports := make(chan api.SpawnEnd, 10)
	ended := func(end api.SpawnEnd) { reports <- end }
	require.NoError(t, e.look(t.Context(), ended))
	require.Empty(t, reports)

	s.set(func() { s.marked = []string{"sir-1", "sir-of-another"} })
	require.NoError(t, e.look(t.Context(), ended))
	require.NoError(t, e.look(t.Context(), ended))
	require.Len(t, reports, 1, "once")
	notice := <-reports
	require.True(t, notice.Notice)
	require.Equal(t, []string{"c-1", "c", "AWS takes its spot instance back"},
		[]string{notice.AgentID, notice.Cluster, notice.Reason})
	require.WithinDuration(t, time.Now().Add(noticeTime), notice.At, 5*time.Second)

	s.set(func() {
		s.end(s.instance("i-1"), "terminated", "Server.SpotInstanceTermination: Spot instance termination")
		s.end(s.instance("i-2"), "stopped", "Client.InstanceInitiatedShutdown: Instance initiated shutdown")
	})
	require.NoError(t, e.Terminate(t.Context(), "c-3", true))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go e.Watch(ctx, ended)
	reasons := map[string]string{}
	for range 2 {
		end := <-reports
		require.True(t, end.Gone)
		reasons[end.AgentID] = end.Reason
	}
	require.Equal(t, map[string]string{
		"c-1": "its instance is terminated: Server.SpotInstanceTermination: Spot instance termination",
		"c-2": "its instance is stopped: Client.InstanceInitiatedShutdown: Instance initiated shutdown",
	}, reasons, "an end that was asked for is not reported")
	require.Eventually(t, func() (off bool) {
		s.set(func() { off = nameOf(s.instance("i-2")) == "terminated" })
		return off
	}, time.Minute, 10*time.Millisecond, "a stopped instance is not kept")
	require.Empty(t, reports)
}

// TestTheUserDataStartsTheAgent runs the script as an instance does, with a systemd-run of the test.
func TestTheUserDataStartsTheAgent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "systemd-run"), []byte(`#!/bin/sh
for a; do case $a in --property=EnvironmentFile=*) file=${a#*EnvironmentFile=};; esac; done
echo "$@" >`+dir+`/asked
while [ "$1" != /bin/sh ]; do shift; done
set -a; . "$file"; exec "$@"
`), 0o700))
	values := map[string]string{"COLOUR": "it's \"blue\" `x` $HOME \\n", "LINES_OF_IT": "one\ntwo"}
	e, err := New(Options{Region: "eu-central-1", User: strconv.Itoa(os.Getuid()),
		Options: spawner.Options{Name: "cloud", JoinToken: func(cluster.SpawnSpec) (string, error) { return "token", nil },
			Command: func(cluster.SpawnSpec) []string {
				return []string{"sh", "-c", `printf '%s|' "$COLOUR" "$LINES_OF_IT" "$MAINSTAY_AGENT_ID" "$1" >"$2"`, "agent",
					"it's $HOME", filepath.Join(dir, "started")}
			}}})
	require.NoError(t, err)
	script, err := e.userData(&cluster.SpawnSpec{ID: "c-1", Cluster: "c", Environment: values})
	require.NoError(t, err)
	require.NotContains(t, script, "token-", "files are encoded")
	script = strings.ReplaceAll(script, spawner.FilesDir, filepath.Join(dir, "files"))
	command := exec.CommandContext(t.Context(), "sh", "-c", script)
	command.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
	output, err := command.CombinedOutput()
	require.NoError(t, err, "%s", output)
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		return string(text)
	}
	require.Equal(t, values["COLOUR"]+"|one\ntwo|c-1|it's $HOME|", read("started"))
	require.Equal(t, "token", read("files/join-token"))
	require.NotContains(t, read("asked"), "token")
	info, err := os.Stat(filepath.Join(dir, "files/join-token"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	_, err = e.userData(&cluster.SpawnSpec{ID: "c-1", Cluster: "c",
		Environment: map[string]string{"LARGE": strings.Repeat("x", userDataLimit)}})
	require.ErrorIs(t, err, spawner.ErrRefused)
	require.ErrorContains(t, err, "bytes of user data, and EC2 allows 16384")
}

// TestAWSsCommandLineAgrees holds the server of these tests to AWS's own client.
func TestAWSsCommandLineAgrees(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes long: each of its commands starts Python")
	}
	t.Parallel()
	program, err := exec.LookPath("aws")
	if err != nil {
		t.Skip("the server of these tests is not checked with AWS's command line: no aws in the PATH (Debian: awscli)")
	}
	s := newServer(t)
	e := spawnerOf(t, s)
	home := t.TempDir()
	cli := func(args ...string) (map[string]any, string) {
		command := exec.CommandContext(t.Context(), program, append([]string{"ec2", "--endpoint-url", s.url, "--region",
			"eu-central-1", "--output", "json"}, args...)...)
		command.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "AWS_ACCESS_KEY_ID=AKID",
			"AWS_SECRET_ACCESS_KEY=secret", "AWS_PAGER=", "AWS_MAX_ATTEMPTS=1"}
		var problem strings.Builder
		command.Stderr = &problem
		output, _ := command.Output()
		answer := map[string]any{}
		_ = json.Unmarshal(output, &answer)
		return answer, problem.String()
	}
	spawned, err := e.Spawn(t.Context(), spec)
	require.NoError(t, err)
	seen, problem := cli("describe-instances", "--filters", "Name=tag:"+tagAgent+",Values=c-1")
	require.Empty(t, problem)
	instance := seen["Reservations"].([]any)[0].(map[string]any)["Instances"].([]any)[0].(map[string]any)
	require.Equal(t, []any{spawned.Handle, spawned.Host, "running", "sir-1"}, []any{instance["InstanceId"],
		instance["PrivateDnsName"], instance["State"].(map[string]any)["Name"], instance["SpotInstanceRequestId"]})

	run := []string{"run-instances", "--image-id", "ami-1", "--instance-type", "c6g.large", "--client-token", "cli",
		"--tag-specifications", "ResourceType=instance,Tags=[{Key=" + tagSpawner + ",Value=cloud},{Key=" + tagAgent +
			",Value=c-2},{Key=" + tagCluster + ",Value=c}]"}
	seen, problem = cli(run...)
	require.Empty(t, problem)
	require.Len(t, seen["Instances"], 1)
	_, problem = cli(append(run, "--user-data", "another")...)
	require.Contains(t, problem, "An error occurred (IdempotentParameterMismatch) when calling the RunInstances operation")
	require.Eventually(t, func() bool {
		list, err := e.List(t.Context())
		return err == nil && len(list) == 2 && list[1].ID == "c-2"
	}, time.Minute, 10*time.Millisecond, "the spawner sees the instance of the command line")

	s.set(func() { s.marked = []string{"sir-1"} })
	seen, problem = cli("describe-spot-instance-requests", "--filters",
		"Name=status-code,Values=marked-for-termination,marked-for-stop")
	require.Empty(t, problem)
	require.Len(t, seen["SpotInstanceRequests"], 1)
	seen, problem = cli("terminate-instances", "--instance-ids", spawned.Handle)
	require.Empty(t, problem)
	require.Len(t, seen["TerminatingInstances"], 1)
	s.set(func() { s.refuses["TerminateInstances"] = "RequestLimitExceeded Request limit exceeded." })
	_, problem = cli("terminate-instances", "--instance-ids", spawned.Handle)
	require.Contains(t, problem, "An error occurred (RequestLimitExceeded) when calling the TerminateInstances operation")
}

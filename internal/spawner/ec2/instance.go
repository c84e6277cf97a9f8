package ec2

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/spawner"
)

// userDataLimit is EC2's, in bytes.
const userDataLimit = 16 << 10

// newDir becomes spawner.FilesDir when all files are in it, so that a unit of the image can wait for that.
const newDir = spawner.FilesDir + ".new"

// Files of an instance beside its join token.
const (
	envFile    = "agent.env"
	startFile  = "start"
	startAgent = "systemd-run --unit=mainstay-agent --uid=%s --property=EnvironmentFile=%s --property=TimeoutStopSec=%d " +
		"--property='ExecStopPost=+/usr/bin/systemctl --no-block poweroff' /bin/sh %s\n"
)

// describe puts together the instance to run. earlier is the agent's terminated instance.
func (e *EC2) describe(spec *cluster.SpawnSpec, earlier string) (*awsec2.RunInstancesInput, error) {
	in := &awsec2.RunInstancesInput{
		MinCount: aws.Int32(1), MaxCount: aws.Int32(1), ClientToken: aws.String(clientToken(e.o.Name, spec.ID+earlier)),
		InstanceType: types.InstanceType(cmp.Or(spec.EC2.InstanceType, e.o.InstanceType)),
		SubnetId:     given(e.o.Subnet),
		// A system that shuts itself down, as when its agent ends, is not kept.
		InstanceInitiatedShutdownBehavior: types.ShutdownBehaviorTerminate,
		// Programs in containers of the instance cannot reach the user data.
		MetadataOptions: &types.InstanceMetadataOptionsRequest{HttpTokens: types.HttpTokensStateRequired,
			HttpPutResponseHopLimit: aws.Int32(1)},
	}
	image := cmp.Or(spec.Image, e.o.Image)
	if image == "" && e.o.LaunchTemplate == "" {
		_, err := e.o.ImageOf(spec)
		return nil, err
	}
	in.ImageId = given(image)
	if e.o.SecurityGroup != "" {
		in.SecurityGroupIds = []string{e.o.SecurityGroup}
	}
	if e.o.Profile != "" {
		in.IamInstanceProfile = &types.IamInstanceProfileSpecification{Name: &e.o.Profile}
	}
	if name := e.o.LaunchTemplate; strings.HasPrefix(name, "lt-") {
		in.LaunchTemplate = &types.LaunchTemplateSpecification{LaunchTemplateId: &name}
	} else if name != "" {
		in.LaunchTemplate = &types.LaunchTemplateSpecification{LaunchTemplateName: &name}
	}
	if in.LaunchTemplate != nil {
		in.LaunchTemplate.Version = given(e.o.LaunchTemplateVersion)
	}
	tags := []types.Tag{newTag("Name", "mainstay-"+spec.ID), newTag(tagSpawner, e.o.Name), newTag(tagAgent, spec.ID),
		newTag(tagCluster, spec.Cluster)}
	tagged := []types.ResourceType{types.ResourceTypeInstance, types.ResourceTypeVolume}
	if spec.EC2.Spot {
		in.InstanceMarketOptions = &types.InstanceMarketOptionsRequest{MarketType: types.MarketTypeSpot,
			SpotOptions: &types.SpotMarketOptions{SpotInstanceType: types.SpotInstanceTypeOneTime,
				InstanceInterruptionBehavior: types.InstanceInterruptionBehaviorTerminate}}
		tagged = append(tagged, types.ResourceTypeSpotInstancesRequest)
	}
	for _, what := range tagged {
		in.TagSpecifications = append(in.TagSpecifications, types.TagSpecification{ResourceType: what, Tags: tags})
	}
	script, err := e.userData(spec)
	in.UserData = aws.String(base64.StdEncoding.EncodeToString([]byte(script)))
	return in, err
}

// clientToken makes EC2 run one instance for a start of an agent. It may have 64 characters.
func clientToken(name, start string) string {
	sum := sha256.Sum256([]byte(name + "/" + start))
	return hex.EncodeToString(sum[:])
}

// given is a value of a request; empty: it is left out.
func given(value string) *string {
	if value == "" {
		return nil
	}
	return &value
}

func newTag(key, value string) types.Tag { return types.Tag{Key: &key, Value: &value} }

// userData is the script that an instance runs once, when it starts for the first time. It writes the agent's files and
// starts the agent; without a command the image does that.
func (e *EC2) userData(spec *cluster.SpawnSpec) (string, error) {
	files, err := e.o.Files(spec)
	if err != nil {
		return "", err
	}
	var env strings.Builder
	for _, entry := range append(e.o.Environment(spec), e.o.FileEnvironment()...) {
		name, value, _ := strings.Cut(entry, "=")
		env.WriteString(name + `="` + quoted.Replace(value) + "\"\n")
	}
	files[envFile] = []byte(env.String())
	then := ""
	if command := e.o.CommandOf(spec); len(command) > 0 {
		words := make([]string, len(command))
		for i, word := range command {
			words[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
		files[startFile] = []byte("exec " + strings.Join(words, " ") + "\n")
		then = fmt.Sprintf(startAgent, e.o.User, spawner.FilesDir+"/"+envFile, int(e.o.StopGrace.Seconds()+0.5),
			spawner.FilesDir+"/"+startFile)
	}
	script := "#!/bin/sh\nset -eu\numask 077\nmkdir " + newDir + "\n"
	for _, name := range slices.Sorted(maps.Keys(files)) {
		script += fmt.Sprintf("echo %s | base64 -d >%s/%s\n", base64.StdEncoding.EncodeToString(files[name]), newDir, name)
	}
	script += fmt.Sprintf("chown -R %s %s\nmv %[2]s %s\n", e.o.User, newDir, spawner.FilesDir) + then
	if len(script) > userDataLimit {
		return "", fmt.Errorf("%w: the environment and the files of its agent take %d bytes of user data, and EC2 allows %d",
			spawner.ErrRefused, len(script), userDataLimit)
	}
	return script, nil
}

// quoted escapes what a shell and systemd would read between double quotes.
var quoted = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`")

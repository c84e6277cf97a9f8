package controlplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
	"go.uber.org/zap"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/config"
	"mainstay.dev/mainstay/internal/contract"
)

// connectLimit bounds the first contact with Temporal.
const connectLimit = 15 * time.Second

// Connect reaches a Temporal and checks that the namespace is there.
func Connect(ctx context.Context, o client.Options) (client.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	if o.Identity == "" {
		o.Identity = Identity()
	}
	o.DataConverter, o.FailureConverter = contract.Payloads, contract.Failures
	c, err := client.DialContext(ctx, o)
	if err != nil {
		return nil, cannotConnect(o, err)
	}
	_, err = c.WorkflowService().DescribeNamespace(ctx,
		&workflowservice.DescribeNamespaceRequest{Namespace: o.Namespace})
	var missing *serviceerror.NamespaceNotFound
	var notFound *serviceerror.NotFound
	var denied *serviceerror.PermissionDenied
	switch {
	case err == nil, errors.As(err, &denied): // may be forbidden to clients that can do everything else
		return c, nil
	case errors.As(err, &missing), errors.As(err, &notFound):
		err = fmt.Errorf("Temporal at %s has no namespace %q. Name another with TEMPORAL_NAMESPACE, or make it:\n  temporal operator namespace create --namespace %s --retention 168h", o.HostPort, o.Namespace, o.Namespace) //nolint:staticcheck // a sentence for people
	default:
		err = cannotConnect(o, err)
	}
	c.Close()
	return nil, err
}

func cannotConnect(o client.Options, err error) error {
	return app.WithExit(app.ExitUnreachable, fmt.Errorf("cannot reach Temporal at %s (namespace %s): %w\n"+
		"Check that it runs and can be reached from here, and the variables TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, TEMPORAL_API_KEY and TEMPORAL_TLS, which mean the same as for the temporal CLI",
		o.HostPort, o.Namespace, err))
}

// Identity is how Temporal's histories and Web UI name a process of the control plane.
func Identity() string { return fmt.Sprintf("control-plane/%d@%s", os.Getpid(), app.HostName()) }

// visibleLimit is how long new search attributes may take to reach all parts of Temporal.
const visibleLimit = 30 * time.Second

// EnsureSearchAttributes registers the search attributes that the namespace does not have, and returns when Temporal
// knows all of them.
func EnsureSearchAttributes(ctx context.Context, c client.Client, namespace string, log *zap.Logger) error {
	wanted := contract.SearchAttributes()
	listed, err := c.OperatorService().ListSearchAttributes(ctx,
		&operatorservice.ListSearchAttributesRequest{Namespace: namespace})
	if err != nil {
		log.Debug("Search attributes cannot be listed here; asking for each", zap.Error(err))
		return probeEach(ctx, c, namespace, wanted)
	}
	missing, err := compareAttributes(wanted, listed.GetCustomAttributes())
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		if err = addAttributes(ctx, c, namespace, missing); err != nil {
			return err
		}
		log.Info("Registered search attributes", zap.Strings("names", sortedKeys(missing)),
			zap.String("namespace", namespace))
	}
	// Even if none was missing: another process may have added them a moment ago, and Temporal lists them before it
	// takes them.
	ctx, cancel := context.WithTimeout(ctx, visibleLimit)
	defer cancel()
	for {
		if err = probeEach(ctx, c, namespace, wanted); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// addAttributes adds the missing ones. If several processes start at the same time, only one may succeed.
func addAttributes(
	ctx context.Context, c client.Client, namespace string, missing map[string]enumspb.IndexedValueType,
) error {
	_, err := c.OperatorService().AddSearchAttributes(ctx,
		&operatorservice.AddSearchAttributesRequest{Namespace: namespace, SearchAttributes: missing})
	if err == nil {
		return nil
	}
	listed, again := c.OperatorService().ListSearchAttributes(ctx,
		&operatorservice.ListSearchAttributesRequest{Namespace: namespace})
	if again == nil {
		var left map[string]enumspb.IndexedValueType
		if left, again = compareAttributes(missing, listed.GetCustomAttributes()); again == nil && len(left) == 0 {
			return nil
		}
	}
	return missingAttributes(namespace, missing, err)
}

// compareAttributes finds the missing ones; one of another type is an error.
func compareAttributes(
	wanted, present map[string]enumspb.IndexedValueType,
) (map[string]enumspb.IndexedValueType, error) {
	missing := map[string]enumspb.IndexedValueType{}
	for _, name := range sortedKeys(wanted) {
		switch kind, there := present[name]; {
		case !there:
			missing[name] = wanted[name]
		case kind != wanted[name]:
			return nil, fmt.Errorf(
				"the search attribute %s of the namespace has type %s, and Mainstay needs it as %s: rename or remove it", name, kind, wanted[name])
		}
	}
	return missing, nil
}

// probeEach asks with each attribute in a query: Temporal refuses those that it does not know.
func probeEach(
	ctx context.Context, c client.Client, namespace string, wanted map[string]enumspb.IndexedValueType,
) error {
	missing := map[string]enumspb.IndexedValueType{}
	var refusal error
	for _, name := range sortedKeys(wanted) {
		_, err := c.CountWorkflow(ctx, &workflowservice.CountWorkflowExecutionsRequest{Namespace: namespace,
			Query: name + " IS NULL"})
		var invalid *serviceerror.InvalidArgument
		switch {
		case errors.As(err, &invalid):
			missing[name], refusal = wanted[name], err
		case err != nil:
			return fmt.Errorf("check the search attribute %s: %w", name, err)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return missingAttributes(namespace, missing, refusal)
}

// missingAttributes says how somebody who may can add them.
func missingAttributes(namespace string, missing map[string]enumspb.IndexedValueType, err error) error {
	var b strings.Builder
	for _, name := range sortedKeys(missing) {
		fmt.Fprintf(&b, "\n  temporal operator search-attribute create --namespace %s --name %s --type %s", namespace,
			name, missing[name])
	}
	return fmt.Errorf(
		"namespace %s lacks search attributes that Mainstay needs, and they cannot be added from here: %w\nHave them added by somebody who may:%s", namespace, err, b.String())
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// clientOptions say how to reach Temporal. The TEMPORAL_* variables that the temporal CLI knows win, then the
// profile of Temporal's own file when TEMPORAL_CONFIG_FILE or TEMPORAL_PROFILE asks for it, then the temporal section.
func clientOptions(section config.Temporal, env envconfig.EnvLookup) (client.Options, error) {
	file, _ := env.LookupEnv("TEMPORAL_CONFIG_FILE")
	profileName, _ := env.LookupEnv("TEMPORAL_PROFILE")
	profile, err := envconfig.LoadClientConfigProfile(envconfig.LoadClientConfigProfileOptions{
		// A file that happens to lie in the user's home must not overrule ours.
		DisableFile: file == "" && profileName == "",
		EnvLookup:   env,
	})
	if err != nil {
		return client.Options{}, fmt.Errorf("read Temporal's settings from the environment: %w", err)
	}
	profile.Address = cmp.Or(profile.Address, section.Address)
	profile.Namespace = cmp.Or(profile.Namespace, section.Namespace)
	options, err := profile.ToClientOptions(envconfig.ToClientOptionsRequest{})
	if err != nil {
		return client.Options{}, fmt.Errorf("apply Temporal's settings (TEMPORAL_* and the temporal section): %w", err)
	}
	return options, nil
}

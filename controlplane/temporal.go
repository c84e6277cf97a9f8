package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"mainstay.dev/mainstay/cli/app"
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
		err = fmt.Errorf("Temporal at %s has no namespace %q. Name another with TEMPORAL_NAMESPACE, or make it:\n  temporal operator namespace create --namespace %s --retention 72h", o.HostPort, o.Namespace, o.Namespace) //nolint:staticcheck // a sentence for people
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

package controlplane

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/gateway"
	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/guard"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/hub"
)

// OpenAPICommand prints the OpenAPI document.
func OpenAPICommand(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use:   "openapi",
		Short: "Print the OpenAPI 3.1 document of the REST API and of the agent protocol",
		Long: `Print the OpenAPI 3.1 document of this version's REST API and agent protocol, as a control plane serves it at
/openapi.json. Nothing needs to run.`,
		Example: "  mainstay openapi > openapi.json",
		Args:    app.Exactly(),
		RunE: func(*cobra.Command, []string) error {
			text, err := apiDocument(a.Version)
			if err != nil {
				return err
			}
			_, err = a.Stdout.Write(text)
			return err
		},
	}
}

// apiDocument is the document of a process with all roles, indented. It needs no Temporal: nothing is called.
func apiDocument(version string) ([]byte, error) {
	api := httpapi.New(httpapi.Options{Version: version})
	gateway.New(gateway.Options{}).Register(api.API())
	new(hub.Hub).Register(api.API())
	guard.RegisterSession(api.API(), nil)
	text, err := json.Marshal(api.API().OpenAPI())
	if err != nil {
		return nil, fmt.Errorf("write the OpenAPI document: %w", err)
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, text, "", "  "); err != nil {
		return nil, fmt.Errorf("indent the OpenAPI document: %w", err)
	}
	indented.WriteByte('\n')
	return indented.Bytes(), nil
}

package modeltask

import (
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"

	"mainstay.dev/mainstay/internal/config/document"
	"mainstay.dev/mainstay/internal/mesh"
	"mainstay.dev/sdk/api"
)

// File says which models an agent may call: a YAML file.
type File struct {
	Providers map[string]*Provider `json:"providers"` // by name
}

// Provider serves models.
type Provider struct {
	// Kind is the form of its API: openai or anthropic.
	Kind string `json:"kind"`
	// URL is the root of its API. Default: the one of the kind's own provider.
	URL string `json:"url"`
	// KeyEnv names the variable with its key. The key stays in the agent.
	KeyEnv string `json:"key_env"`
	// Models are the models that tasks may name. Default: any.
	Models []string `json:"models"`
	// Prices are the prices of models. A model without one costs nothing.
	Prices map[string]Price `json:"prices"`
}

// Price is what a million tokens of a model cost, in US dollars.
type Price struct {
	In  float64 `json:"in"`
	Out float64 `json:"out"`
}

// of is what a call cost.
func (p Price) of(u *mesh.Usage) float64 {
	return (p.In*float64(u.InputTokens) + p.Out*float64(u.OutputTokens)) / 1e6
}

// Read reads and checks a file.
func Read(path string) (*File, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the providers of models: %w", err)
	}
	f := &File{}
	places, err := document.Read(path, text, f, nil)
	if err != nil {
		return nil, err
	}
	var problems []document.Problem
	wrong := func(field, format string, args ...any) {
		problems = append(problems, places.Place(field, format, args...))
	}
	if len(f.Providers) == 0 {
		wrong("providers", "must name at least one provider")
	}
	for _, name := range f.names() {
		p, field := f.Providers[name], "providers."+name
		if p == nil {
			wrong(field, "must say kind and key_env")
			continue
		}
		if api.ValidateID("provider", name) != nil {
			wrong(field, "must be a name like openai or my-models")
		}
		kind, known := kinds[p.Kind]
		if p.URL == "" {
			p.URL = kind.url
		}
		switch u, err := url.Parse(p.URL); {
		case !known:
			wrong(field+".kind", "must be openai or anthropic: the form of the provider's API")
		case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil ||
			u.RawQuery != "":
			wrong(field+".url", "must be like https://models.example/v1; a key belongs into key_env")
		case p.KeyEnv != "" && os.Getenv(p.KeyEnv) == "":
			wrong(field+".key_env", "the environment has no variable %s", p.KeyEnv)
		}
		for _, model := range slices.Sorted(maps.Keys(p.Prices)) {
			if price := p.Prices[model]; price.In < 0 || price.Out < 0 {
				wrong(field+".prices."+model, "must be US dollars for a million tokens, like {in: 3, out: 15}")
			}
		}
	}
	if len(problems) > 0 {
		return nil, &document.Error{Problems: problems}
	}
	return f, nil
}

func (p *Provider) key() string {
	if p.KeyEnv == "" {
		return ""
	}
	return os.Getenv(p.KeyEnv)
}

func (f *File) names() []string { return slices.Sorted(maps.Keys(f.Providers)) }

// Capabilities are the capabilities of an agent that can call the providers.
func (f *File) Capabilities() []string {
	names := f.names()
	for i, name := range names {
		names[i] = api.ModelCapability(name)
	}
	return names
}

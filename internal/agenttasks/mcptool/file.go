package mcptool

import (
	"fmt"
	"net/url"
	"os"
	"slices"

	"mainstay.dev/mainstay/internal/config/document"
)

// File is what `mainstay agent run --mcp` reads: the servers of tools that the agent may use.
type File struct {
	Servers map[string]*Server `json:"servers"` // by name
}

// Server is a server of the Model Context Protocol. It has either a command or a URL.
type Server struct {
	// Command starts the server, which then speaks over its input and output. Of the agent's environment it sees PATH,
	// HOME and the like, and the variables that Env names.
	Command []string `json:"command"`
	Env     []string `json:"env"`
	// URL is where a server speaks streamable HTTP. TokenEnv names the variable with a token that it wants as
	// "Authorization: Bearer".
	URL      string `json:"url"`
	TokenEnv string `json:"token_env"`
	// Tools are those that tasks may call. Idempotent lists the ones that may be called again when nobody knows whether
	// a call has done its work. A server's own statements about its tools are ignored.
	Tools      []string `json:"tools"`
	Idempotent []string `json:"idempotent"`
}

// Shown is the first variable, other than the names, that a server which the agent starts sees. Every process of the
// agent's user can read it there. "": there is none.
func (f *File) Shown(names []string) string {
	for _, server := range f.names() {
		for _, name := range f.Servers[server].Env {
			if !slices.Contains(names, name) {
				return name
			}
		}
	}
	return ""
}

// Read reads and checks a file.
func Read(path string) (*File, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the servers of tools: %w", err)
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
	if len(f.Servers) == 0 {
		wrong("servers", "must name at least one server")
	}
	for _, name := range f.names() {
		s, field := f.Servers[name], "servers."+name
		if s == nil {
			wrong(field, "must have either command or url")
			continue
		}
		switch u, err := url.Parse(s.URL); {
		case (len(s.Command) == 0) == (s.URL == ""):
			wrong(field, "must have either command or url")
		case s.URL != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil ||
			u.RawQuery != ""):
			wrong(field+".url", "must be like https://tools.example/mcp; a token belongs into token_env")
		case s.TokenEnv != "" && os.Getenv(s.TokenEnv) == "":
			wrong(field+".token_env", "the environment has no variable %s", s.TokenEnv)
		}
		if len(s.Tools) == 0 {
			wrong(field, "must list the tools that tasks may call, as tools: [search]")
		}
		for _, tool := range s.Idempotent {
			if !slices.Contains(s.Tools, tool) {
				wrong(field+".idempotent", "%s is not among the tools", tool)
			}
		}
	}
	if len(problems) > 0 {
		return nil, &document.Error{Problems: problems}
	}
	return f, nil
}

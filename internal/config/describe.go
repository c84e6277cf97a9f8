package config

import (
	"cmp"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"

	"mainstay.dev/mainstay/internal/config/document"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// Setting is one effective value and where it comes from.
type Setting struct {
	Key   string `json:"key"` // such as hub.park or clusters[0].name
	Value any    `json:"value"`
	// Source is default, file, env or flag; From says which line, variable or flag.
	Source string `json:"source"`
	From   string `json:"from,omitempty"`
}

// The sources of a setting.
const (
	FromDefault = "default"
	FromFile    = "file"
	FromEnv     = "env"
	FromFlag    = "flag"
)

// Override is a value that a flag gives.
type Override struct{ Flag, Value string }

// Describe reads and checks the file at path ("": none) and lists every value that holds, in the order of the file's
// form. flags are values that the command line gives, by key; they win, after the environment, and are checked like the
// others. temporal says which address and namespace hold, of those in the file; lookup finds a variable, if only to say
// that it was set. It lists no secrets: the file names where they are.
func Describe(path string, temporal func(Temporal) (Temporal, error), lookup func(string) (string, bool),
	flags map[string]Override,
) ([]Setting, error) {
	c, places := Default(), &document.Places{}
	if path != "" {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read the configuration: %w", err)
		}
		if c, places, err = parse(path, text); err != nil {
			return nil, err
		}
	}
	if err := c.checkFlags(flags); err != nil {
		return nil, err
	}
	d := &description{places: places, path: path}
	d.walk("", reflect.ValueOf(*c))
	if err := d.overrule(c, temporal, lookup, flags); err != nil {
		return nil, err
	}
	for i := range d.settings {
		d.settings[i].Value = shown(d.settings[i].Value)
	}
	return d.settings, nil
}

// checkFlags checks the values that flags give.
func (c *Config) checkFlags(flags map[string]Override) error {
	given := *c
	for key, target := range map[string]*string{"http.listen": &given.HTTP.Listen, "hub.id": &given.Hub.ID} {
		if o, there := flags[key]; there {
			*target = o.Value
		}
	}
	var wrong []Problem
	for _, p := range given.problems() { // those of the file are not there: it was read
		if o, there := flags[p.Field]; there {
			wrong = append(wrong, Problem{Field: "--" + o.Flag, What: p.What})
		}
	}
	if len(wrong) > 0 {
		return &Error{Problems: wrong}
	}
	return nil
}

type description struct {
	places   *document.Places
	path     string
	settings []Setting
}

// keys are the fields of a section, including those of embedded structs.
func keys(section reflect.Type) []reflect.StructField {
	return slices.DeleteFunc(reflect.VisibleFields(section), func(f reflect.StructField) bool { return f.Anonymous })
}

// walk lists the leaves below a value.
func (d *description) walk(key string, v reflect.Value) {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return
		}
		v = v.Elem()
	}
	switch {
	case v.Kind() == reflect.Struct:
		for _, field := range keys(v.Type()) {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if key != "" {
				name = key + "." + name
			}
			d.walk(name, v.FieldByIndex(field.Index))
		}
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct:
		for i := range v.Len() {
			d.walk(fmt.Sprintf("%s[%d]", key, i), v.Index(i))
		}
	default:
		setting := Setting{Key: key, Value: v.Interface(), Source: FromDefault}
		if line := d.writtenAt(key); line > 0 {
			setting.Source, setting.From = FromFile, fmt.Sprintf("%s:%d", d.path, line)
		}
		d.settings = append(d.settings, setting)
	}
}

// shown is a value without the passwords of the addresses in it.
func shown(value any) any {
	switch v := value.(type) {
	case string:
		if strings.Contains(v, "://") {
			return protocol.ShownURL(v)
		}
	case []string:
		list := slices.Clone(v)
		for i := range list {
			list[i], _ = shown(list[i]).(string)
		}
		return list
	}
	return value
}

// inherited are the keys of the hub section that agent_cluster gives where that leaves them out.
var inherited = []string{"heartbeat_interval", "warning_threshold", "failure_threshold", "health_check_interval"}

// writtenAt is the line of the file that a value comes from, 0: none.
func (d *description) writtenAt(key string) int {
	if line := d.places.Line(key); line > 0 {
		return line
	}
	for _, name := range inherited {
		if key == "hub."+name {
			return d.places.Line("agent_cluster.health_monitoring." + name)
		}
	}
	return 0
}

// overrule applies the environment and the flags.
func (d *description) overrule(c *Config, temporal func(Temporal) (Temporal, error),
	lookup func(string) (string, bool), flags map[string]Override,
) error {
	effective, err := temporal(c.Temporal)
	if err != nil {
		return err
	}
	for key, of := range map[string]struct{ value, variable string }{
		"temporal.address":   {effective.Address, "TEMPORAL_ADDRESS"},
		"temporal.namespace": {effective.Namespace, "TEMPORAL_NAMESPACE"},
	} {
		set, _ := lookup(of.variable)
		from := of.variable
		if set == "" {
			from = "Temporal's own profile"
		}
		d.set(key, func(s *Setting) {
			if s.Value != of.value || set != "" {
				*s = Setting{Key: key, Value: of.value, Source: FromEnv, From: from}
			}
		})
	}
	for key, o := range flags {
		d.set(key, func(s *Setting) { *s = Setting{Key: key, Value: o.Value, Source: FromFlag, From: "--" + o.Flag} })
	}
	return nil
}

func (d *description) set(key string, change func(*Setting)) {
	if i := slices.IndexFunc(d.settings, func(s Setting) bool { return s.Key == key }); i >= 0 {
		change(&d.settings[i])
	}
}

// Text is the value as it is written in a file.
func (s Setting) Text() string {
	switch value := s.Value.(type) {
	case api.Duration:
		return value.String()
	case string:
		return cmp.Or(value, `""`)
	}
	if v := reflect.ValueOf(s.Value); (v.Kind() == reflect.Map || v.Kind() == reflect.Slice) && v.Len() == 0 {
		return "(none)"
	}
	return fmt.Sprint(s.Value)
}

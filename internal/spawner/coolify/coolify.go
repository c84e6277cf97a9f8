// Package coolify starts agents as applications of a Coolify server, from images. All that it knows of them is in
// Coolify: their names come from the spawns' ids and their descriptions name the spawner, so that the next process
// takes them over.
package coolify

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/spawner"
	"mainstay.dev/mainstay/internal/textfile"
	"mainstay.dev/sdk/api"
)

const (
	// pause is the time between two looks at one application or deployment, and lookEvery that between two looks at
	// all.
	pause     = 2 * time.Second
	lookEvery = 10 * time.Second
	// startLimit is how long a deployment may take.
	startLimit = 100 * time.Second
	// goneLimit is how much longer than its grace a stop may take: Coolify queues it.
	goneLimit = time.Minute
)

// description marks an application as an agent's: its id, its cluster and its spawner.
const description = "Mainstay agent %s of cluster %s, spawner %s"

// Options describe a spawner of applications.
type Options struct {
	spawner.Options
	// URL is Coolify's own, such as https://coolify.example.com, and TokenFile a file with a token of its API.
	URL, TokenFile string
	// Server, Project and Environment are where the applications are made: two uuids, and the environment's name.
	Server, Project, EnvironmentName string
	// Destination is the uuid of the server's network; empty: the server has one.
	Destination string
	// Pause is the time between two looks at a deployment or an application; 0 means 2 seconds.
	Pause time.Duration
}

// Coolify is a Spawner of applications. They live on when it ends.
type Coolify struct {
	o           Options
	base, token string
	turns       spawner.Turns
	ends        spawner.Ends
	ran         map[string]bool // by uuid: seen running by Watch
}

// New makes a spawner. It does not call Coolify, which may be away.
func New(o Options) (*Coolify, error) {
	if err := o.Fill(); err != nil {
		return nil, err
	}
	o.Pause = cmp.Or(o.Pause, pause)
	token, err := textfile.ReadWord(o.TokenFile)
	if err != nil {
		return nil, fmt.Errorf("read the token of Coolify: %w", err)
	}
	return &Coolify{o: o, base: strings.TrimRight(o.URL, "/") + "/api/v1", token: token,
		ran: map[string]bool{}}, nil
}

// Close implements the end of a spawner. The applications live on.
func (c *Coolify) Close() {}

// Platform implements spawner.Spawner.
func (c *Coolify) Platform() api.Platform { return api.PlatformCoolify }

// Spawn implements spawner.Spawner. It waits until the application is deployed.
func (c *Coolify) Spawn(ctx context.Context, spec cluster.SpawnSpec) (cluster.Spawned, error) {
	if err := spawner.CheckSpec(&spec); err != nil {
		return cluster.Spawned{}, err
	}
	release, err := c.turns.Take(ctx, spec.ID)
	if err != nil {
		return cluster.Spawned{}, err
	}
	defer release()
	app, err := c.find(ctx, spec.ID)
	if err == nil && app == nil {
		app, err = c.create(ctx, &spec)
	}
	if err == nil && !app.is("running") { // each step may be repeated: a spawner may have died after any of them
		err = c.deploy(ctx, app.UUID, &spec)
	}
	if err != nil {
		return cluster.Spawned{}, err
	}
	return c.spawned(spec.ID, spec.Cluster, app), nil
}

func (c *Coolify) spawned(id, clusterName string, app *application) cluster.Spawned {
	return cluster.Spawned{ID: id, Cluster: clusterName, Spawner: c.o.Name, Platform: api.PlatformCoolify,
		Handle:    app.UUID,
		StartedAt: app.CreatedAt.UTC()}
}

// applications are all of this spawner, by agent; clusters are theirs.
func (c *Coolify) applications(
	ctx context.Context,
) (apps map[string]application, clusters map[string]string, err error) {
	var all []application
	if err := c.call(ctx, "list the applications", http.MethodGet, "/applications", nil, &all); err != nil {
		return nil, nil, err
	}
	apps, clusters = map[string]application{}, map[string]string{}
	for i := range all {
		words := strings.NewReplacer(",", "").Replace(all[i].Description)
		var id, cluster, name string
		n, _ := fmt.Sscanf(words, strings.ReplaceAll(description, ",", ""), &id, &cluster, &name)
		if n == 3 && name == c.o.Name {
			apps[id], clusters[id] = all[i], cluster
		}
	}
	return apps, clusters, nil
}

func (c *Coolify) find(ctx context.Context, id string) (*application, error) {
	apps, _, err := c.applications(ctx)
	if app, found := apps[id]; found {
		return &app, err
	}
	return nil, err
}

func (c *Coolify) create(ctx context.Context, spec *cluster.SpawnSpec) (*application, error) {
	image, err := c.o.ImageOf(spec)
	if err != nil {
		return nil, err
	}
	name, tag := image, "latest"
	if at := strings.LastIndexByte(image, ':'); at > strings.LastIndexByte(image, '/') {
		name, tag = image[:at], image[at+1:]
	}
	body := map[string]any{
		"project_uuid":               c.o.Project,
		"server_uuid":                c.o.Server,
		"environment_name":           c.o.EnvironmentName,
		"name":                       "mainstay-" + spec.ID,
		"description":                fmt.Sprintf(description, spec.ID, spec.Cluster, c.o.Name),
		"docker_registry_image_name": name,
		"docker_registry_image_tag":  tag,
		"ports_exposes":              "80", // older versions of Coolify demand one; nothing is routed to it
		"autogenerate_domain":        false,
		"health_check_enabled":       false,
		"instant_deploy":             false,
		"custom_docker_run_options":  "--cap-drop=ALL",
		"stop_grace_period":          int(c.o.StopGrace.Seconds() + 0.5),
	}
	if c.o.Destination != "" {
		body["destination_uuid"] = c.o.Destination
	}
	if milli, _ := spec.Resources.MilliCPU(); milli > 0 {
		body["limits_cpus"] = strconv.FormatFloat(float64(milli)/1000, 'f', -1, 64)
	}
	if memory, _ := spec.Resources.MemoryBytes(); memory > 0 {
		body["limits_memory"], body["limits_memory_swap"] = strconv.FormatInt(memory, 10), strconv.FormatInt(memory, 10)
	}
	app := &application{CreatedAt: time.Now()}
	err = c.call(ctx, "create the application", http.MethodPost, "/applications/dockerimage", body, app)
	if err != nil {
		return nil, err
	}
	c.o.Logger.Sugar().Infow("An agent was started", "agent", spec.ID, "cluster", spec.Cluster, "application", app.UUID)
	return app, nil
}

// deploy gives an application its environment and files, starts it, and waits for the end of its deployment.
func (c *Coolify) deploy(ctx context.Context, uuid string, spec *cluster.SpawnSpec) error {
	var data []variable
	for _, entry := range append(c.o.Environment(spec), c.o.FileEnvironment()...) {
		name, value, _ := strings.Cut(entry, "=")
		data = append(data, variable{name, value, true})
	}
	err := c.call(ctx, "set the application's environment", http.MethodPatch, "/applications/"+uuid+"/envs/bulk",
		map[string]any{"data": data}, nil)
	if err == nil {
		err = c.giveFiles(ctx, uuid, spec)
	}
	var started struct {
		Deployment string `json:"deployment_uuid"`
	}
	if err == nil {
		err = c.call(ctx, "start the application", http.MethodPost, "/applications/"+uuid+"/start", nil, &started)
	}
	if err != nil {
		return err
	}
	var d struct{ Status, Logs string }
	for end := time.Now().Add(startLimit); d.Status != "finished"; {
		if err := spawner.Pause(ctx, c.o.Pause); err != nil {
			return err
		}
		err := c.call(ctx, "look at the deployment", http.MethodGet, "/deployments/"+started.Deployment, nil, &d)
		switch {
		case err != nil:
			return err
		case d.Status == "failed", strings.HasPrefix(d.Status, "cancelled"), time.Now().After(end):
			return fmt.Errorf("%w: its deployment is %s%s", spawner.ErrRefused, d.Status, spawner.LastWords(outputs(d.Logs)))
		}
	}
	return nil
}

// outputs are the lines of a deployment's log.
func outputs(log string) string {
	var lines []struct {
		Output string
		Hidden bool
	}
	if json.Unmarshal([]byte(log), &lines) != nil {
		return log
	}
	var text strings.Builder
	for _, line := range lines {
		if !line.Hidden {
			text.WriteString(line.Output + "\n")
		}
	}
	return text.String()
}

// giveFiles adds the files that an application does not have yet.
func (c *Coolify) giveFiles(ctx context.Context, uuid string, spec *cluster.SpawnSpec) error {
	files, err := c.o.Files(spec)
	if err != nil || len(files) == 0 {
		return err
	}
	type storage struct {
		Type    string `json:"type"`
		Path    string `json:"mount_path"`
		Content string `json:"content"`
	}
	var there struct {
		Files []storage `json:"file_storages"`
	}
	path := "/applications/" + uuid + "/storages"
	if err := c.call(ctx, "list the application's files", http.MethodGet, path, nil, &there); err != nil {
		return err
	}
	for name, content := range files {
		file := storage{"file", spawner.FilesDir + "/" + name, string(content)}
		if slices.ContainsFunc(there.Files, func(s storage) bool { return s.Path == file.Path }) {
			continue
		}
		if err := c.call(ctx, "add a file to the application", http.MethodPost, path, file, nil); err != nil {
			return err
		}
	}
	return nil
}

// Terminate implements spawner.Spawner. It returns when Coolify knows the application no more.
func (c *Coolify) Terminate(ctx context.Context, id string, graceful bool) error {
	if api.ValidateID("id", id) != nil {
		return nil
	}
	release, err := c.turns.Take(ctx, id)
	if err != nil {
		return err
	}
	defer release()
	app, err := c.find(ctx, id)
	if err != nil || app == nil {
		return err
	}
	defer c.ends.Forget(app.UUID)
	defer c.ends.Ask(id)()
	path := "/applications/" + app.UUID
	if graceful && !app.is("exited") {
		err = c.call(ctx, "stop the application", http.MethodPost, path+"/stop", nil, nil)
		if err == nil {
			err = c.until(ctx, path, c.o.StopGrace, func(a *application) bool { return a.is("exited") })
		}
		if err != nil {
			c.o.Logger.Sugar().Infow("An application is not stopped: it is deleted", "agent", id, "error", err)
		}
	}
	err = c.call(ctx, "delete the application", http.MethodDelete, path, nil, nil)
	if err != nil && !errors.Is(err, errNotFound) {
		return err
	}
	return c.until(ctx, path, goneLimit, func(*application) bool { return false })
}

// until looks at an application until it is done or gone; an error says that it is neither after the limit.
func (c *Coolify) until(ctx context.Context, path string, limit time.Duration, done func(*application) bool) error {
	for end := time.Now().Add(limit); ; {
		app := application{}
		err := c.call(ctx, "look at the application", http.MethodGet, path, nil, &app)
		switch {
		case errors.Is(err, errNotFound), err == nil && done(&app):
			return nil
		case err != nil:
			return err
		case time.Now().After(end):
			return fmt.Errorf("the application is %s after %s", app.Status, limit)
		}
		if err := spawner.Pause(ctx, c.o.Pause); err != nil {
			return err
		}
	}
}

// List implements spawner.Spawner.
func (c *Coolify) List(ctx context.Context) ([]cluster.Spawned, error) {
	apps, clusters, err := c.applications(ctx)
	if err != nil {
		return nil, err
	}
	list := []cluster.Spawned{}
	for id, app := range apps {
		if !app.is("exited") {
			list = append(list, c.spawned(id, clusters[id], &app))
		}
	}
	spawner.SortSpawned(list)
	return list, nil
}

// Watch implements spawner.Watcher. It also deletes applications that ended a while ago, and those that never ran
// because a spawner died. An end that happens while no spawner runs is not reported.
func (c *Coolify) Watch(ctx context.Context, ended func(api.SpawnEnd)) {
	spawner.Look(ctx, c.o.Logger, "Coolify", min(lookEvery, 5*c.o.Pause), func() error { return c.look(ctx, ended) })
}

func (c *Coolify) look(ctx context.Context, ended func(api.SpawnEnd)) error {
	apps, clusters, err := c.applications(ctx)
	if err != nil {
		return err
	}
	for id, app := range apps {
		if !app.is("exited") {
			c.ran[app.UUID] = true
			continue
		}
		if c.ran[app.UUID] && c.ends.Take(id, app.UUID) {
			delete(c.ran, app.UUID)
			reason := "its application is " + app.Status + c.lastWords(ctx, app.UUID)
			c.o.Logger.Sugar().Infow("An agent's application has ended", "agent", id, "reason", reason)
			ended(api.SpawnEnd{AgentID: id, Cluster: clusters[id], At: time.Now(), Reason: reason})
		}
		if time.Since(app.UpdatedAt) > c.o.Keep {
			if err := c.Terminate(ctx, id, false); err != nil {
				return err
			}
		}
	}
	return nil
}

// lastWords is the last line of an application's log; empty where Coolify has none.
func (c *Coolify) lastWords(ctx context.Context, uuid string) string {
	var log struct{ Logs string }
	if c.call(ctx, "read the log", http.MethodGet, "/applications/"+uuid+"/logs?lines=1", nil, &log) != nil {
		return ""
	}
	return spawner.LastWords(log.Logs)
}

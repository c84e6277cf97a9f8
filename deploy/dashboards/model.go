// Package dashboards makes the Grafana dashboards of deploy/grafana. Queries of the fleet join gateways by max and hubs
// by sum, as docs/METRICS.md says.
package dashboards

import (
	"bytes"
	"encoding/json"
	"fmt"
)

//go:generate go run ./generate

// Dashboard is one dashboard, as far as it is ours to decide.
type Dashboard struct {
	UID, Title, Description string
	Panels                  []Panel
}

// Panel is one panel. Panels are laid out from left to right; Grafana's grid is 24 wide.
type Panel struct {
	Kind          string // timeseries, stat, table or row
	Title, About  string
	Unit          string
	Width, Height int
	Queries       []Query
	Steps         []Step // thresholds, of stats
	Max           *float64
}

// Query is one PromQL expression. Legend names its series, as in {{cluster_id}}.
type Query struct{ Expr, Legend string }

// Step colours values from From on.
type Step struct {
	From  float64
	Color string
}

type object = map[string]any

var source = object{"type": "prometheus", "uid": "${datasource}"}

// JSON is the dashboard as Grafana imports it.
func (d *Dashboard) JSON() ([]byte, error) {
	var panels []object
	x, y, row := 0, 0, 0
	for i := range d.Panels {
		p := &d.Panels[i]
		if x+p.Width > 24 {
			x, y, row = 0, y+row, 0
		}
		panels = append(panels, p.object(i+1, x, y))
		x, row = x+p.Width, max(row, p.Height)
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(object{
		"uid": d.UID, "title": d.Title, "description": d.Description, "tags": []string{"mainstay"},
		"timezone": "browser", "schemaVersion": 39,
		"editable": true, "graphTooltip": 1, "refresh": "30s", "time": object{"from": "now-1h", "to": "now"},
		"links": []object{{"type": "dashboards", "title": "Mainstay", "tooltip": "The other dashboards of Mainstay",
			"icon": "external link", "tags": []string{"mainstay"},
			"asDropdown": true, "keepTime": true, "includeVars": true, "targetBlank": false}},
		"templating": object{"list": variables()}, "panels": panels,
	})
	if err != nil {
		return nil, fmt.Errorf("encode the dashboard %s: %w", d.UID, err)
	}
	return out.Bytes(), nil
}

// ClusterVariable is the query of the clusters that can be chosen.
const ClusterVariable = "label_values(stella_agent_cluster_health, cluster_id)"

func variables() []object {
	return []object{
		{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
		{"name": "cluster", "label": "Cluster", "type": "query", "datasource": source,
			"query":   object{"query": ClusterVariable, "refId": "clusters"},
			"refresh": 2, "sort": 1, "includeAll": true, "multi": true, "allValue": ".*",
			"current": object{"text": []string{"All"}, "value": []string{"$__all"}}},
	}
}

func (p *Panel) object(id, x, y int) object {
	defaults := object{"unit": p.Unit, "min": 0}
	if p.Max != nil {
		defaults["max"] = *p.Max
	}
	if len(p.Steps) > 0 {
		steps := []object{}
		for i, s := range p.Steps {
			step := object{"color": s.Color, "value": s.From}
			if i == 0 {
				step["value"] = nil
			}
			steps = append(steps, step)
		}
		defaults["thresholds"] = object{"mode": "absolute", "steps": steps}
	}
	targets := []object{}
	for i, q := range p.Queries {
		target := object{"refId": string(rune('A' + i)), "expr": q.Expr, "legendFormat": q.Legend, "datasource": source}
		if p.Kind == "table" {
			target["format"], target["instant"] = "table", true
		} else {
			target["range"] = true
		}
		targets = append(targets, target)
	}
	o := object{
		"id": id, "type": p.Kind, "title": p.Title, "description": p.About, "datasource": source,
		"gridPos": object{"x": x, "y": y, "w": p.Width, "h": p.Height}, "targets": targets,
		"fieldConfig": object{"defaults": defaults, "overrides": []object{}},
	}
	switch p.Kind {
	case "stat":
		o["options"] = object{"colorMode": "background", "graphMode": "area",
			"reduceOptions": object{"calcs": []string{"lastNotNull"}}}
	case "timeseries":
		o["options"] = object{"legend": object{"displayMode": "list", "placement": "bottom"},
			"tooltip": object{"mode": "multi", "sort": "desc"}}
	case "table":
		o["transformations"] = []object{{"id": "merge", "options": object{}}}
	}
	return o
}

package flow

import "strings"

// elsewhere explains keys that other systems, or later versions, have. "*" stands for every section.
var elsewhere = map[string]string{
	"complete_job":               "is the old name: a step with terminal_sink: true completes the run with complete_run",
	"complete_job?":              "is the old name: a step with terminal_sink: true completes the run with complete_run",
	"complete_step":              "is part of a result, not of a definition: a task's result may be {\"complete_step\": …}",
	"complete_run":               "is part of a result, not of a definition: write terminal_sink: true, and let the task's result be {\"complete_run\": …}",
	"max_agent_restart_attempts": "is the old name: write recovery: {restart: {attempts: N}}",
	"safe_to_retry":              "is written safety: idempotent if it is true, and safety: at_most_once if not",
	"idempotent":                 "is written safety: idempotent if it is true, and safety: at_most_once if not",
	"idempotency_key":            "is written safety: idempotent; a dispatch has the key",
	"recovery_idempotency_key":   "is written safety: idempotent",
	"manual_review_on_recovery":  "is written safety: at_most_once if it is true; if not, remove it",
	"requires_approval":          "is written as a step of its own if it is true: {approve: {message: …}}; if not, remove it",
	"side_effects":               "is written safety: at_most_once if work must not be done again",
	"unsafe":                     "is written safety: at_most_once if it is true; if not, remove it",
	"policies":                   "is written without this section: recovery: {mode: cluster_recover, restart: {…}, reschedule: {…}} in the job, in a step or in instances",
	"recovery_mode":              "is written recovery: {mode: cluster_recover}",
	"job_type":                   "is written type: service, at the top",
	"restart":                    "stands in recovery: {restart: {attempts: 3}}",
	"reschedule":                 "stands in recovery: {reschedule: {attempts: 1}}",
	"interval_ms":                "is written interval, with a unit: 60s",
	"delay_ms":                   "is written delay, with a unit: 1s",
	"max_delay_ms":               "is written max_delay, with a unit: 30s",
	"flow":                       "is written without this section: steps, at the top",
	"nodes":                      "is written steps, or instances of a service",
	"heartbeat_deadline_at":      "is told, not written: beacon: {timeout: 45s}",
	"agent_beacon":               "is written beacon: {timeout: 45s}",
	"complete_on_message":        "is written join: any, and output_message_type is left out",
	"depends_on":                 "is written after: [step]",
	"needs":                      "is written after: [step]",
	"dependencies":               "is written after: [step]",
	"when":                       "is written if: CEL",
	"condition":                  "is written if: CEL",
	"with_items":                 "is written for_each: CEL that gives a list",
	"foreach":                    "is written for_each: CEL that gives a list",
	"retries":                    "is written retry: {max_attempts: N}",
	"min_healthy_time":           "is written healthy_after",
	"healthy_deadline":           "is written healthy_within",
	"progress_deadline":          "is written progress_within",
	"auto_promote":               "is written promote: auto",
	"auto_revert":                "is written revert: true",
	"stagger":                    "is written healthy_after: a new instance must be healthy for so long before the next",
	"max_unavailable":            "is written order: stop_first with max_parallel",
	"stop":                       "stands in instances: stop: {grace: 5s}",
	"spread":                     "this version spreads instances over agents by their load",
	"distinct":                   "this version spreads instances over agents by their load",
	"requires":                   "stands in the job, not in a step: requires: {services: […]}",
	"model":                      "is written as a task: {type: model, routes: [{provider: …, model: …}], payload: {messages: […]}}",
	"tool":                       "is written name in a list of tools, or is a task: {type: mcp-tool, payload: {server: …, tool: …, arguments: {…}}}",
	"compensate":                 "this version does not compensate; use a step with on_failure: hold, and decide",
	"place":                      "stands beside task, in a step and in instances",
	"run":                        asCommand,
	"script":                     asCommand,
	"command":                    asCommand,
	"args":                       asCommand,
	"env":                        "is part of a command: task: {type: exec, payload: {command: [make, test], env: {NAME: value}}}",
	"dir":                        "is part of a command: task: {type: exec, payload: {command: [make, test], dir: /srv/app}}",
	"replicas":                   "is written count",
	"every":                      "is written interval",
	"<<":                         "must be written out: merges are not allowed",
	"task":                       "stands in a step, or in instances: {steps: {build: {task: …}}}",
}

const asCommand = "is written task: {type: exec, payload: {command: [make, test]}}"

// hint explains keys that people may bring from elsewhere.
func hint(section, key string) string {
	if section == "steps" || strings.Contains(section, ".payload") || strings.HasPrefix(section, "inputs") {
		return ""
	}
	if section == "" && key == "name" {
		return "is written job"
	}
	return elsewhere[key]
}

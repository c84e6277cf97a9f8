package flow

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/config/document"
	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/sdk/api"
)

// head begins a definition whose steps are then in line 3 and after.
const head = "job: build\ncluster: default\n"

// task is a step's task that needs nothing.
const task = "{type: echo}"

func TestMistakes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"empty":    {"", "f.yaml: is empty"},
		"not YAML": {"job: [a", "f.yaml:1:1: is not valid YAML: did not find expected ',' or ']'"},
		"a tab": {"job: a\nsteps:\n\ta: {}", "f.yaml:3:1: is not valid YAML: found character that " +
			"cannot start any token; lines are indented with blanks, not with tabs"},
		"two jobs": {head + "steps: {a: {task: {type: echo}}}\n---\njob: b",
			`f.yaml: must hold one document; remove what follows the second "---"`},
		"no name": {"cluster: default\nsteps: {a: {task: {type: echo}}}",
			"f.yaml:1:1: job: is missing: give the job a name, like nightly-report"},
		"a bad name": {"job: My Job\ncluster: default\nsteps: {a: {task: {type: echo}}}",
			"f.yaml:1:1: job: must be in lower case: a-z, 0-9, '.', '_' and '-'"},
		"a label of two lines": {"job: a\ncluster: c\nlabels: {x: \"a\\nb\"}\nsteps: {a: {task: {type: echo}}}",
			"f.yaml:3:10: labels.x: has a line end or another control character: leave it out"},
		"no instance of a service": {"job: a\ncluster: c\ntype: service\ninstances: {count: -1, task: {type: serve}}",
			"f.yaml:4:20: instances.count: must be between 0 and 1000; leave it out for the default"},
		"a zero": {head + "steps: {a: {task: {type: echo}, timeout: 0s, retry: {max_attempts: 0}}}",
			"f.yaml:3:42: steps.a.timeout: must be between 1s and 720h; leave it out for the default\nf.yaml:3:68: " +
				"steps.a.retry.max_attempts: must be between 1 and 100; leave it out for the default"},
		"a number as text": {head + "concurrency: {max_runs: '3'}\nsteps: {a: {task: {type: echo}}}",
			"f.yaml:3:25: concurrency.max_runs: must be a whole number between 1 and 100"},
		"no number": {head + "concurrency: {max_runs: }\nsteps: {a: {task: {type: echo}}}",
			"f.yaml:3:25: concurrency.max_runs: has no value: give it one, or leave it out"},
		"a label too long": {"job: a\ncluster: c\nlabels: {x: " + strings.Repeat("y",
			129) + "}\nsteps: {a: {task: {type: echo}}}", "f.yaml:3:10: labels.x: may be at most 128 characters"},
		"a label's name": {"job: a\ncluster: c\nlabels: {\"x y\": z}\nsteps: {a: {task: {type: echo}}}",
			"f.yaml:3:1: labels: label name may hold only a-z, 0-9, '.', '_' and '-'"},
		"no cluster": {"job: a\nsteps: {a: {task: {type: echo}}}", "f.yaml:1:1: cluster: is missing: name the " +
			"cluster whose agents do the work, like default"},
		"no steps": {head, "f.yaml:1:1: steps: is missing: a job needs at least one step, like {build: {task: " +
			"{type: exec, payload: {command: [make]}}}}"},
		"a typo": {head + "stepz: {}", "f.yaml:3:1: stepz: is no known key; did you mean steps?"},
		"policies": {head + "policies: {recovery_mode: cluster_recover}\nsteps: {a: {task: {type: echo}}}",
			"f.yaml:3:1: policies: is written without this section: recovery: {mode: cluster_recover, restart: {…}, " +
				"reschedule: {…}} in the job, in a step or in instances"},
		"interval_ms": {head + "recovery: {restart: {interval_ms: 60000}}\nsteps: {a: {task: {type: echo}}}",
			"f.yaml:3:22: recovery.restart.interval_ms: is written interval, with a unit: 60s"},
		"unknown key": {head + "steps:\n  a:\n    task: {type: echo}\n    colour: red",
			"f.yaml:6:5: steps.a.colour: is no known key; known here are task, tools, max_turns, approve, wait, after, if, " +
				"join, for_each, max_parallel, tolerate, optional, safety, retry, recovery, timeout, stop_grace, " +
				"disconnect_grace, deadline, place, beacon, output, result_limit, on_failure, check, terminal_sink"},
		"a bad amount": {head + "steps:\n  a:\n    task: {type: echo}\n    place:\n      devices: [{kind: gpu, memory: " +
			"lots}]",
			`f.yaml:7:29: steps.a.place.devices[0].memory: must be an amount of bytes, like "512Mi" or "4Gi"`},
		"place in the task": {head + "steps: {a: {task: {type: echo, place: {ports: {http: {}}}}}}",
			"f.yaml:3:32: steps.a.task.place: belongs to the step: write place beside task"},
		"a place of nothing": {head + "steps: {a: {wait: {for: 5s}, place: {}}}",
			"f.yaml:3:30: steps.a.place: belongs to a step with a task: remove it here"},
		"key twice": {head + "cluster: other", "f.yaml:3:1: cluster: is already set in line 2; keep one of them"},
		"a tag": {head + "steps: {a: {task: {type: echo, payload: [echo, !important, x]}}}",
			"f.yaml:3:48: steps.a.task.payload[1]: begins with !, which is YAML's mark of a type: put it in quotes"},
		"an alias": {head + "steps: {a: &a {task: {type: echo}}, b: *a}", "f.yaml:3:40: steps.b: must be written out: " +
			"aliases are not allowed"},
		"a step's id": {head + "steps: {Build: {task: {type: echo}}}", "f.yaml:3:9: steps.Build: must be 1 to 24 " +
			"characters of a-z, 0-9 and -, and begin with a letter"},
		"nothing to do": {head + "steps:\n  a: {after: []}",
			"f.yaml:4:3: steps.a: does not say what it does: give it task, approve or wait"},
		"two things": {head + "steps:\n  a: {task: {type: echo}, wait: {for: 5s}}",
			"f.yaml:4:3: steps.a: does several things; keep one of task, approve and wait, and make steps of the others"},
		"unknown dependency": {head + "steps: {build: {task: {type: echo}}, b: {task: {type: echo}, after: [biuld]}}",
			"f.yaml:3:70: steps.b.after[0]: there is no such step; did you mean build?"},
		"after itself": {head + "steps: {a: {task: {type: echo}, after: [a]}}",
			"f.yaml:3:41: steps.a.after[0]: a step cannot come after itself; remove it"},
		"after twice": {head + "steps: {a: {task: {type: echo}}, b: {task: {type: echo}, after: [a, a]}}",
			"f.yaml:3:69: steps.b.after[1]: stands here twice; remove one"},
		"no recovery": {head + "recovery: local\nsteps: {a: {task: {type: echo}}}",
			"f.yaml:3:11: recovery: must be cluster_recover, local_restart or manual_recover, or a section with mode, restart " +
				"and reschedule"},
		"a recovery's typo": {head + "recovery:\n  restart: {tries: 3}\nsteps: {a: {task: {type: echo}}}",
			"f.yaml:4:13: recovery.restart.tries: is no known key; known here are attempts, interval, delay, delay_function, " +
				"max_delay, mode, unlimited"},
		"a recovery's bounds": {head + "recovery: {restart: {attempts: 99}}\nsteps: {a: {task: {type: echo}}}",
			"f.yaml:3:32: recovery.restart.attempts: must be between 0 and 50"},
		"recovery and retry": {head + "steps: {a: {task: {type: echo}, recovery: local_restart, retry: {max_attempts: 2}}}",
			"f.yaml:3:33: steps.a.recovery: takes the place of retry: keep one of them"},
		"a task's recovery": {head + "steps: {a: {task: {type: echo, recovery: {}}}}",
			"f.yaml:3:32: steps.a.task.recovery: belongs to the step: write recovery beside task"},
		"a circle": {head + "steps:\n  a: {task: {type: echo}, after: [c]}\n  b: {task: {type: echo}, after: [a]}\n  c: " +
			"{task: {type: echo}, after: [b]}",
			"f.yaml:4:27: steps.a.after: goes in a circle: a after c after b after a; remove one of these dependencies"},
		"join of too many": {head + "steps: {a: {task: {type: echo}}, b: {task: {type: echo}, after: [a], join: 2, output: " +
			"{x: result}}}",
			"f.yaml:3:70: steps.b.join: asks for 2 steps, but after names 1: name more of them there, or ask for fewer"},
		"join without output": {head + "steps: {a: {task: {type: echo}}, b: {task: {type: echo}, after: [a], join: any}}",
			"f.yaml:3:34: steps.b.output: is missing: with join any or a number it is not certain which steps have ended; say " +
				"with output what this step hands on"},
		"join of nothing": {head + "steps: {a: {task: {type: echo}, join: 2, output: {x: result}}}",
			"f.yaml:3:33: steps.a.join: needs after: name there the steps of which so many must be through"},
		"a trigger without a time": {head + "on: [{}]\nsteps: {a: {task: {type: echo}}}",
			`f.yaml:3:6: on[0]: must say when, like {schedule: {cron: "0 3 * * *"}}, or {event: {type: …}}`},
		"a check that says nothing": {head + "steps: {a: {task: {type: echo}, check: {}}}",
			"f.yaml:3:33: steps.a.check: says nothing: give it schema, rules or task"},
		"a check's task of another tenant": {head + "steps: {a: {task: {type: echo}, check: {task: {type: judge, tenant: " +
			"x}}}}",
			"f.yaml:3:61: steps.a.check.task.tenant: belongs to the job; remove it here"},
		"a check's task that sees items": {head + "steps: {a: {task: {type: echo}, check: {task: {type: judge, payload: " +
			"'${item}'}}}}",
			"f.yaml:3:61: steps.a.check.task.payload: cannot use item here: only the task of a step with for_each can; there " +
				"are inputs, steps, run, result"},
		"a check of elements": {head + "steps: {a: {task: {type: echo}, for_each: '[1]', check: {schema: {}}}}",
			"f.yaml:3:50: steps.a.check: belongs to a step without for_each: check the results in a step after it"},
		"tools of a command": {head + "steps: {a: {tools: [{server: s, name: n}], task: {type: exec, payload: {command: " +
			"[a]}}}}",
			"f.yaml:3:13: steps.a.tools: belongs to a step whose task has the type model: write that, or remove them"},
		"a tool's name": {head + "steps: {a: {tools: [{server: s, name: a.b}], task: {type: model, routes: [{provider: p, " +
			"model: m}], payload: {messages: [{role: user, content: x}]}}}}",
			"f.yaml:3:33: steps.a.tools[0].name: must be 1 to 64 letters, digits, _ and -: providers of models take no other " +
				"names"},
		"a tool twice": {head + "steps: {a: {tools: [{server: s, name: n}, {server: t, name: n}], task: {type: model, " +
			"routes: [{provider: p, model: m}], payload: {messages: [{role: user, content: x}]}}}}",
			"f.yaml:3:55: steps.a.tools[1].name: is that of two tools, and the model tells them apart by it: remove one"},
		"a tool of no server": {head + "steps: {a: {tools: [{name: n}], task: {type: model, routes: [{provider: p, model: " +
			"m}], payload: {messages: [{role: user, content: x}]}}}}",
			"f.yaml:3:21: steps.a.tools[0].server: is missing: name the server that has the tool, as agents name it"},
		"a tool's arguments": {head + "steps: {a: {tools: [{server: s, name: n, arguments: {type: text}}], task: {type: " +
			"model, routes: [{provider: p, model: m}], payload: {messages: [{role: user, content: x}]}}}}",
			"f.yaml:3:42: steps.a.tools[0].arguments: is not a valid JSON Schema: type: value must be one of 'array', " +
				"'boolean', 'integer', 'null', 'number', 'object', 'string'"},
		"a tool's safety": {head + "steps: {a: {tools: [{server: s, name: n, safety: once}], task: {type: model, routes: " +
			"[{provider: p, model: m}], payload: {messages: [{role: user, content: x}]}}}}",
			"f.yaml:3:42: steps.a.tools[0].safety: must be one of idempotent, fenced, at_most_once, unmarked"},
		"turns without tools": {head + "steps: {a: {max_turns: 3, task: {type: model, routes: [{provider: p, model: m}], " +
			"payload: {messages: [{role: user, content: x}]}}}}",
			"f.yaml:3:13: steps.a.max_turns: belongs to a step with tools: add these, or remove this"},
		"too many turns": {head + "steps: {a: {max_turns: 51, tools: [{server: s, name: n}], task: {type: model, routes: " +
			"[{provider: p, model: m}], payload: {messages: [{role: user, content: x}]}}}}",
			"f.yaml:3:24: steps.a.max_turns: must be between 1 and 50"},
		"tools at a wait": {head + "steps: {a: {wait: {for: 5s}, tools: [{server: s, name: n}]}}",
			"f.yaml:3:30: steps.a.tools: belongs to a step with a task: remove it here"},
		"an event without a type": {head + "on: [{event: {where: 'true'}}]\nsteps: {a: {task: {type: echo}}}",
			"f.yaml:3:7: on[0].event.type: is missing, or longer than 255 bytes"},
		"a trigger that reads steps": {head + "on: [{event: {type: t, inputs: {x: '${steps.a.output}'}}}]\nsteps: {a: " +
			"{task: {type: echo}}}",
			"f.yaml:3:33: on[0].event.inputs.x: cannot use steps here; there are event"},
		"a condition that is none": {head + "on: [{event: {type: t, where: 'event.data == 3 ? 1 : 2'}}]\nsteps: {a: {task: " +
			"{type: echo}}}",
			"f.yaml:3:24: on[0].event.where: must give true or false, and gives a whole number"},
		"an event in a step": {head + "steps: {a: {task: {type: echo, payload: '${event.data}'}}}",
			"f.yaml:3:32: steps.a.task.payload: cannot use event here: only a trigger by event can; hand on what is needed " +
				"with its inputs; there are inputs, steps, run"},
		"no join": {head + "steps: {a: {task: {type: echo}, join: some}}",
			"f.yaml:3:39: steps.a.join: must be all, any, or how many of after must be through"},
		"wrong CEL": {head + "steps: {a: {task: {type: echo}, if: 'inputs.x =='}}",
			"f.yaml:3:33: steps.a.if: is not valid CEL: it ends too early (column 12 of the expression)"},
		"unknown variable": {head + "steps: {a: {task: {type: echo}, if: input.x}}",
			"f.yaml:3:33: steps.a.if: is not valid CEL: there is no variable input; write text in quotes (column 1 of the " +
				"expression)"},
		"no truth": {head + "steps: {a: {task: {type: echo}, if: '1 + 1'}}",
			"f.yaml:3:33: steps.a.if: must give true or false, and gives a whole number"},
		"no list": {head + "steps: {a: {task: {type: echo}, for_each: '1 + 1'}}",
			"f.yaml:3:33: steps.a.for_each: must give a list, and gives a whole number"},
		"unknown step read": {head + "steps: {build: {task: {type: echo}}, b: {after: [build], task: {type: echo, payload: " +
			"'${steps.biuld.output}'}}}",
			"f.yaml:3:77: steps.b.task.payload: reads steps.biuld, and there is no such step; did you mean build?"},
		"read before after": {head + "steps: {a: {task: {type: echo}}, b: {task: {type: echo, payload: " +
			"'${steps.a.output}'}}}",
			"f.yaml:3:57: steps.b.task.payload: reads steps.a, which may not have ended by then: add a to steps.b.after"},
		"unknown field of a step": {head + "steps: {a: {task: {type: echo}}, b: {after: [a], if: steps.a.outputs == 1, " +
			"task: {type: echo}}}",
			"f.yaml:3:50: steps.b.if: reads steps.a.outputs; a step has status, output, error, failed"},
		"undeclared input": {head + "inputs: {type: object, properties: {bucket: {type: string}}}\nsteps: {a: {task: " +
			"{type: echo, payload: '${inputs.buket}'}}}",
			"f.yaml:4:32: steps.a.task.payload: reads inputs.buket, which inputs does not declare; did you mean bucket?"},
		"item without for_each": {head + "steps: {a: {task: {type: echo, payload: '${item}'}}}",
			"f.yaml:3:32: steps.a.task.payload: cannot use item here: only the task of a step with for_each can; there are " +
				"inputs, steps, run"},
		"an open expression": {head + "steps: {a: {task: {type: echo, payload: 'x ${inputs.y'}}}",
			`f.yaml:3:32: steps.a.task.payload: has a "${" without its "}"; write "$${" for the characters themselves`},
		"result outside output": {head + "steps: {a: {task: {type: echo, payload: '${result}'}}}",
			"f.yaml:3:32: steps.a.task.payload: cannot use result here: only output and check can, of a step without " +
				"for_each; there are inputs, steps, run"},
		"parallel without elements": {head + "steps: {a: {task: {type: echo}, max_parallel: 3}}",
			"f.yaml:3:33: steps.a.max_parallel: belongs to a step with for_each: add that, or remove this"},
		"tolerate": {head + "steps: {a: {task: {type: echo}, for_each: '[1]', tolerate: few}}",
			"f.yaml:3:60: steps.a.tolerate: must be how many elements may fail, like 5, or a share of them, like 1%"},
		"too many elements": {head + "steps: {a: {task: {type: echo}, for_each: {count: 100001}}}",
			"f.yaml:3:43: steps.a.for_each: must be CEL that gives a list, in quotes, like \"['a', 'b']\", or {count: N} with " +
				"N from 1 to 100000"},
		"sink with dependents": {head + "steps: {a: {task: {type: echo}, terminal_sink: true}, b: {task: {type: echo}, " +
			"after: [a]}}",
			"f.yaml:3:33: steps.a.terminal_sink: may complete the run, so no step can come after it; b does"},
		"safety": {head + "safety: idempotant\nsteps: {a: {task: {type: echo}}}",
			"f.yaml:3:1: safety: must be one of idempotent, fenced, at_most_once, unmarked; did you mean idempotent?"},
		"on_failure": {head + "steps: {a: {task: {type: echo}, on_failure: ignore}}",
			"f.yaml:3:33: steps.a.on_failure: must be one of fail, partial, skip, hold"},
		"a command in a step": {head + "steps: {a: {run: make}}",
			"f.yaml:3:13: steps.a.run: is written task: {type: exec, payload: {command: [make, test]}}"},
		"a command in a task": {head + "steps: {a: {task: {type: exec, command: [make]}}}",
			"f.yaml:3:32: steps.a.task.command: is written task: {type: exec, payload: {command: [make, test]}}"},
		"a key of the section below": {head + "steps: {a: {type: exec}}",
			"f.yaml:3:13: steps.a.type: belongs in task: {task: {type: …}}"},
		"a key of instances": {head + "type: service\ncount: 3\ninstances: {task: {type: echo}}",
			"f.yaml:4:1: count: belongs in instances: {instances: {count: …}}"},
		"a merge": {head + "steps: {a: &a {task: {type: echo}}, b: {<<: *a}}",
			"f.yaml:3:41: steps.b.<<: must be written out: merges are not allowed"},
		"one trigger": {head + "on: {schedule: {cron: '@daily'}}\nsteps: {a: {task: {type: echo}}}",
			"f.yaml:3:5: on: must be a list, like [{…}, {…}]"},
		"a field of what a command writes": {head + "steps: {a: {task: {type: exec, payload: {command: [a]}}, output: {n: " +
			"result.stdout.n}}}",
			`f.yaml:3:67: steps.a.output.n: reads a field of text: a command hands on data with a last line like ` +
				`{"complete_step": {"n": 1}}, which is its result then`},
		"legacy name": {head + "steps: {a: {task: {type: echo}, complete_job: true}}",
			"f.yaml:3:33: steps.a.complete_job: is the old name: a step with terminal_sink: true completes the run with " +
				"complete_run"},
		"another's name": {head + "steps: {a: {task: {type: echo}}, b: {task: {type: echo}, depends_on: [a]}}",
			"f.yaml:3:58: steps.b.depends_on: is written after: [step]"},
		"a service": {head + "type: service\nsteps: {a: {task: {type: echo}}}",
			"f.yaml:1:1: instances: is missing: a service job has instances, like {task: {type: exec, payload: {command: " +
				"[serve]}}}"},
		"a batch job with instances": {head + "instances: {task: {type: echo}}",
			"f.yaml:3:1: instances: belongs to a job of type service, system or sysbatch: write one of these as type"},
		"a system job with a count": {head + "type: system\ninstances: {count: 2, task: {type: echo}}",
			"f.yaml:4:13: instances.count: belongs to a service: a system job has one instance on each agent"},
		"no time to be away of a fenced instance": {head + "type: system\nsafety: fenced\ninstances: {disconnect: {grace: " +
			"1h}, task: {type: echo}}",
			"f.yaml:5:26: instances.disconnect.grace: has no use for fenced instances: an agent that is out of touch stops " +
				"them when its lease ends; remove it, or write safety: idempotent"},
		"away for ever": {head + "type: system\ninstances: {disconnect: {grace: 25h}, task: {type: echo}}",
			"f.yaml:4:33: instances.disconnect.grace: must be between 0s and 24h"},
		"a grace without end": {head + "type: system\ninstances: {stop: {grace: 1h}, task: {type: echo}}",
			"f.yaml:4:27: instances.stop.grace: must be between 1ms and 10m"},
		"a service with a schedule": {head + "type: service\ninstances: {task: {type: echo}}\non: []\ndeadline: 1h",
			"f.yaml:6:1: deadline: belongs to a batch job, and this one is of type service: remove it"},
		"a service with a timeout": {head + "type: service\ninstances: {task: {type: echo, timeout: 1h}}",
			"f.yaml:4:32: instances.task.timeout: belongs to a sysbatch job: instances of this one run until they are stopped"},
		"services that a step requires": {head + "steps: {a: {task: {type: echo}, requires: {services: [db]}}}",
			"f.yaml:3:33: steps.a.requires: stands in the job, not in a step: requires: {services: […]}"},
		"a required service without a name": {head + "steps: {a: {task: {type: echo}}}\nrequires: {services: [db, a b]}",
			"f.yaml:4:12: requires.services: may hold only a-z, 0-9, '.', '_' and '-'"},
		"a service that requires itself": {head + "type: service\nrequires: {services: [db]}\ninstances: {task: {type: " +
			"echo}, service: {name: db}}",
			"f.yaml:4:12: requires.services: has the job's own service db, which could never start: remove it"},
		"an update of steps": {head + "steps: {a: {task: {type: echo}}}\nupdate: {}",
			"f.yaml:4:1: update: belongs to a service or system job: remove it"},
		"an update of a sysbatch job": {head + "type: sysbatch\nupdate: {}\ninstances: {task: {type: echo}}",
			"f.yaml:4:1: update: belongs to a service or system job: remove it"},
		"an update that cannot succeed": {head + "type: service\nupdate: {healthy_after: 5m}\ninstances: {task: {type: " +
			"echo}}",
			"f.yaml:4:1: update.healthy_within: must be longer than healthy_after, which is 5m0s"},
		"an update that gives up too soon": {head + "type: service\nupdate: {progress_within: 1m}\ninstances: {task: " +
			"{type: echo}}",
			"f.yaml:4:10: update.progress_within: must not be shorter than healthy_within, which is 5m0s"},
		"an update as elsewhere": {head + "type: service\nupdate: {auto_revert: true}\ninstances: {task: {type: echo}}",
			"f.yaml:4:10: update.auto_revert: is written revert: true"},
		"an instance's capabilities": {head + "type: service\ninstances: {task: {type: echo, required_capabilities: [gpu]}}",
			"f.yaml:4:32: instances.task.required_capabilities: is written instances.place.capabilities"},
		"an instance's type": {head + "type: service\ninstances: {task: {type: 'A'}}",
			"f.yaml:4:20: instances.task.type: must be in lower case: a-z, 0-9, '.', '_' and '-'"},
		"no type": {head + "steps: {a: {task: {payload: 1}}}", "f.yaml:3:13: steps.a.task.type: is missing: say what kind " +
			"of work it is, like exec"},
		"cluster of a task": {head + "steps: {a: {task: {type: echo, cluster: x}}}",
			"f.yaml:3:32: steps.a.task.cluster: belongs to the job; remove it here"},
		"safety of a task": {head + "steps: {a: {task: {type: echo, retry_safety: fenced}}}",
			"f.yaml:3:32: steps.a.task.retry_safety: belongs to the step: write safety beside task"},
		"a duration": {head + "steps: {a: {task: {type: echo}, timeout: 30}}",
			`f.yaml:3:42: steps.a.timeout: is not a duration: write it like "30s", "1m30s" or "7d"`},
		"timeout beyond deadline": {head + "steps: {a: {task: {type: echo}, timeout: 2h, deadline: 1h}}",
			"f.yaml:3:33: steps.a.timeout: is longer than deadline (1h0m0s): shorten it, or lengthen deadline"},
		"retry": {head + "steps: {a: {task: {type: echo}, retry: {max_attempts: 1000}}}",
			"f.yaml:3:55: steps.a.retry.max_attempts: must be between 1 and 100"},
		"result_limit": {head + "steps: {a: {task: {type: echo}, result_limit: 2MiB}}",
			"f.yaml:3:33: steps.a.result_limit: must be at most 1MiB"},
		"wait for nothing": {head + "steps: {a: {wait: {}}}", "f.yaml:3:13: steps.a.wait: needs one of for and until, like " +
			"{for: 1h}"},
		"task's field at a wait": {head + "steps: {a: {wait: {for: 5s}, safety: fenced}}",
			"f.yaml:3:30: steps.a.safety: belongs to a step with a task: remove it here"},
		"approve without words": {head + "steps: {a: {approve: {}}}",
			"f.yaml:3:13: steps.a.approve.message: is missing: say what the person is asked"},
		"schema": {head + "inputs: {type: objekt}\nsteps: {a: {task: {type: echo}}}",
			"f.yaml:3:1: inputs: is not a valid JSON Schema: type: value must be one of 'array', 'boolean', 'integer', " +
				"'null', 'number', 'object', 'string'"},
		"a name that is no word of its schema": {head + "inputs: {commit: {type: string}}\nsteps: {a: {task: {type: echo}}}",
			"f.yaml:3:10: inputs.commit: is no word of JSON Schema: a name belongs in properties, as in {properties: {commit: " +
				"{type: string}}}"},
		"a misspelt word of a schema": {head + "inputs: {properties: {commit: {type: string, defaultt: main}}}\nsteps: {a: " +
			"{task: {type: echo}}}",
			"f.yaml:3:46: inputs.properties.commit.defaultt: is no word of JSON Schema; did you mean default?"},
		"a name that is no word of a check's schema": {head + "steps: {a: {task: {type: echo}, check: {schema: {text: " +
			"{type: string}}}}}",
			"f.yaml:3:50: steps.a.check.schema.text: is no word of JSON Schema: a name belongs in properties, as in " +
				"{properties: {text: {type: string}}}"},
		"a status that no step has": {head + "steps: {a: {task: {type: echo}}, b: {after: [a], if: steps.a.status != " +
			"'success', task: {type: echo}}}",
			`f.yaml:3:50: steps.b.if: compares the status of a with "success": a step is completed, partial, skipped or failed`},
		"a list with a status that no step has": {head + "steps: {a: {task: {type: echo}}, b: {after: [a], if: " +
			"\"steps['a'].status in ['completed', 'ok']\", task: {type: echo}}}",
			`f.yaml:3:50: steps.b.if: compares the status of a with "ok": a step is completed, partial, skipped or failed`},
		"a status with which the step does not begin": {head + "steps: {a: {task: {type: echo}}, b: {after: [a], if: " +
			"'\"failed\" == steps.a.status', task: {type: echo}}}",
			`f.yaml:3:50: steps.b.if: is never true: a step after a begins only once that is completed, partial or skipped; ` +
				`to go on after its failure, write on_failure: partial in a, and compare with "partial"`},
		"failed elements of a step without for_each": {head + "steps: {a: {task: {type: echo}}, b: {after: [a], if: " +
			"steps.a.failed, task: {type: echo}}}",
			`f.yaml:3:50: steps.b.if: reads steps.a.failed, which lists the elements of a for_each that failed, and a has ` +
				`none: ask for steps.a.status`},
		"a hyphen in an expression": {head + "steps: {build-image: {task: {type: echo}, output: {tag: result}}, b: {after: " +
			"[build-image], if: steps.build-image.output.tag == 1, task: {type: echo}}}",
			"f.yaml:3:93: steps.b.if: is not valid CEL: there is no variable image; a name with - is written " +
				"steps['build-image'] (column 13 of the expression)"},
		"a hyphen in a text": {head + "steps: {build-image: {task: {type: echo}, output: {tag: result}}, b: {after: " +
			"[build-image], task: {type: echo, payload: '${steps.build-image.output.tag}'}}}",
			"f.yaml:3:112: steps.b.task.payload: is not valid CEL: there is no variable image; a name with - is written " +
				"steps['build-image'] (column 13 of the expression)"},
		"a variable of a shell": {head + "steps: {a: {task: {type: echo, payload: '${HOME}'}}}",
			"f.yaml:3:32: steps.a.task.payload: is not valid CEL: there is no variable HOME; what a shell is to read is " +
				"written $${HOME} (column 1 of the expression)"},
		"an expansion of a shell": {head + "steps: {a: {task: {type: echo, payload: '${X:-no}'}}}",
			"f.yaml:3:32: steps.a.task.payload: is not valid CEL: unexpected ':'; what a shell is to read is written " +
				"$${X:-no} (column 2 of the expression)"},
		"two braces": {head + "steps: {a: {task: {type: echo, payload: '${{ inputs.x }}'}}}",
			"f.yaml:3:32: steps.a.task.payload: is not valid CEL: unexpected '}'; an expression has one brace: ${inputs.x} " +
				"(column 12 of the expression)"},
		"a function of another system": {head + "steps: {a: {task: {type: echo}, if: always()}}",
			"f.yaml:3:33: steps.a.if: is not valid CEL: there is no function always; ask for the status of a step, as in " +
				"steps.build.status == \"completed\" (column 7 of the expression)"},
		"an expression in braces": {head + "steps: {a: {task: {type: echo}, for_each: '${inputs.list}'}}",
			"f.yaml:3:33: steps.a.for_each: is not valid CEL: unexpected '$'; an expression stands here without ${ and } " +
				"(column 1 of the expression)"},
		"a line break in an expression": {head + "steps: {a: {task: {type: echo}, for_each: \"inputs.x.split('\\n')\"}}",
			"f.yaml:3:33: steps.a.for_each: is not valid CEL: unexpected ''; write a line break in a text as \\n, between " +
				"double quotes of YAML as \\\\n (column 16 of the expression)"},
		"what a for_each does not hand on": {head + "steps: {a: {task: {type: echo}, for_each: '[1]'}, b: {after: [a], " +
			"task: {type: echo, payload: '${steps.a.output}'}}}",
			"f.yaml:3:86: steps.b.task.payload: reads the output of a, and a step with for_each has only what its output " +
				"names: write output: {results: results} in a"},
		"cron": {head + "on: [{schedule: {cron: daily}}]\nsteps: {a: {task: {type: echo}}}",
			"f.yaml:3:18: on[0].schedule.cron: must have 5 fields (minute, hour, day of month, month, day of week), and has 1"},
		"too many triggers": {head + "on: [" + strings.Repeat("{schedule: {cron: '@daily'}}, ",
			9) + "]\nsteps: {a: {task: {type: echo}}}",
			"f.yaml:3:1: on: has 9 triggers, and at most 8 are allowed: one cron may name several times, like 0 3,15 * * *; " +
				"or make another job"},
		"a number for text": {head + "inputs: {type: object, properties: {commit: {type: string}}}\non: [{schedule: {cron: " +
			"'@daily', inputs: {commit: 12}}}]\nsteps: {a: {task: {type: echo}}}",
			`f.yaml:4:34: on[0].schedule.inputs: do not fit the inputs of the job: commit: got number, want string; write ` +
				`text in quotes`},
		"inputs of a schedule": {head + "inputs: {type: object, required: [bucket]}\non: [{schedule: {cron: '@daily', " +
			"inputs: {}}}]\nsteps: {a: {task: {type: echo}}}",
			"f.yaml:4:34: on[0].schedule.inputs: do not fit the inputs of the job: missing property 'bucket'"},
		"not a section": {head + "steps: [a, b]", "f.yaml:3:8: steps: must be a section with keys of your own, like {name: " +
			"…}"},
		"not a list": {head + "steps: {a: {task: {type: echo}, after: b}}",
			"f.yaml:3:40: steps.a.after: must be a list, like [a, b]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := Read("f.yaml", []byte(c.text))
			var wrong *document.Error
			require.ErrorAs(t, err, &wrong)
			require.Equal(t, c.want, wrong.Error())
		})
	}
}

// A step may compare the status of another with what that may be.
func TestComparedStatuses(t *testing.T) {
	t.Parallel()
	for _, b := range []string{
		`after: [a], if: "steps.a.status != 'failed'"`,
		`after: [a], if: "steps.a.status in ['completed', 'partial']"`,
		`after: [a, c], join: any, output: {x: result}, if: "steps.a.status == 'failed'"`,
		`after: [a], if: "'success' == 'success' && steps.a.output.status == 'success'"`,
	} {
		_, _, err := Read("f.yaml", []byte("job: x\ncluster: default\nsteps: {a: {task: {type: echo}}, c: {task: {type: "+
			"echo}}, "+
			"b: {task: {type: echo}, "+b+"}}"))
		require.NoError(t, err, b)
	}
}

// Markers of other systems for what may be repeated are refused with the safety that says the same, wherever they
// stand.
func TestSafetyMarkers(t *testing.T) {
	t.Parallel()
	const (
		again  = "is written safety: idempotent if it is true, and safety: at_most_once if not"
		once   = "is written safety: at_most_once if it is true; if not, remove it"
		person = "is written as a step of its own if it is true: {approve: {message: …}}; if not, remove it"
	)
	for marker, want := range map[string]string{
		"safe_to_retry: true":              again,
		"safe_to_retry: false":             again,
		"idempotent: true":                 again,
		"idempotent: false":                again,
		"idempotency_key: k":               "is written safety: idempotent; a dispatch has the key",
		"recovery_idempotency_key: k":      "is written safety: idempotent",
		"manual_review_on_recovery: true":  once,
		"manual_review_on_recovery: false": once,
		"unsafe: true":                     once,
		"unsafe: false":                    once,
		"requires_approval: true":          person,
		"requires_approval: false":         person,
		"side_effects: external_write":     "is written safety: at_most_once if work must not be done again",
	} {
		t.Run(marker, func(t *testing.T) {
			t.Parallel()
			key, _, _ := strings.Cut(marker, ":")
			for text, where := range map[string]string{
				"steps: {a: {task: {type: echo}, " + marker + "}}": "f.yaml:3:33: steps.a.",
				"steps: {a: {task: {type: echo, " + marker + "}}}": "f.yaml:3:32: steps.a.task.",
			} {
				_, _, err := Read("f.yaml", []byte(head+text))
				require.EqualError(t, err, where+key+": "+want)
			}
		})
	}
}

func TestEverythingWrongIsSaidAtOnce(t *testing.T) {
	t.Parallel()
	_, _, err := Read("f.yaml", []byte(head+"safety: maybe\nsteps:\n  a: {task: {}, if: nothing}\n  b: {after: [c], "+
		"task: {type: echo}}"))
	require.Equal(t, []string{"f.yaml:3:1: safety", "f.yaml:5:7: steps.a.task.type", "f.yaml:5:17: steps.a.if",
		"f.yaml:6:15: steps.b.after[0]"},
		fieldsOf(err))
}

func fieldsOf(err error) (list []string) {
	for line := range strings.SplitSeq(err.Error(), "\n") {
		parts := strings.SplitN(line, ": ", 3)
		list = append(list, parts[0]+": "+parts[1])
	}
	return list
}

// A step can be unmarked although its job's other steps have a safety.
// TestRecoveryOfSteps: a step's own stands before the job's, and one word is enough.
func TestRecoveryOfSteps(t *testing.T) {
	t.Parallel()
	definition, plan, err := Read("f.yaml", []byte(head+`recovery: local_restart
steps:
  a: {task: {type: echo}}
  b: {task: {type: echo}, recovery: {restart: {attempts: 7, delay: 2s}}}
  c: {task: {type: echo}, retry: {max_attempts: 2}}
`))
	require.NoError(t, err)
	require.Equal(t, api.DefaultRecovery(api.LocalRestart, false), *definition.Recovery, "shown with its defaults")
	require.Equal(t, api.LocalRestart, plan.Step("a").Task.Recovery.Mode)
	b := plan.Step("b").Task.Recovery
	require.Equal(t, api.ClusterRecover, b.Mode)
	require.Equal(t, []any{7, "2s", "24h0m0s"}, []any{*b.Restart.Attempts, b.Restart.Delay.String(),
		b.Restart.Interval.String()})
	require.Equal(t, 1, *b.Reschedule.Attempts)
	require.Nil(t, plan.Step("c").Task.Recovery)
}

func TestUnmarkedStep(t *testing.T) {
	t.Parallel()
	_, plan, err := Read("f.yaml", []byte(head+"safety: idempotent\nsteps:\n"+
		"  a: {task: {type: echo}}\n  b: {task: {type: echo}, safety: unmarked}"))
	require.NoError(t, err)
	require.Equal(t, api.Idempotent, plan.Step("a").Safety)
	require.Equal(t, api.Unmarked, plan.Step("b").Task.RetrySafety)
}

// A step that runs a command is watched unless it says otherwise.
func TestCommandsAreWatched(t *testing.T) {
	t.Parallel()
	for step, want := range map[string]time.Duration{
		`{task: {type: exec, payload: {command: [make]}}}`:                         45 * time.Second,
		`{task: {type: exec, payload: {command: [make]}}, beacon: {timeout: 10m}}`: 10 * time.Minute,
		`{task: {type: echo}}`:             0,
		`{task: {type: echo}, beacon: {}}`: 45 * time.Second,
		`{task: {type: exec, payload: {command: [make]}}, for_each: {count: 2}}`: 0,
	} {
		_, plan, err := Read("f.yaml", []byte("{job: j, cluster: c, steps: {a: "+step+"}}"))
		require.NoError(t, err, step)
		require.Equal(t, want, plan.Steps[0].Task.BeaconTimeout.Std(), step)
	}
}

func TestPlan(t *testing.T) {
	t.Parallel()
	d, plan, err := Read("f.yaml", []byte(`
job: build
cluster: default
tenant: acme
labels: {project: film, stage: all}
priority: high
retry: {max_attempts: 5}
inputs: {type: object, properties: {n: {type: integer}}}
steps:
  last: {after: [left, right], safety: fenced, task: {type: echo, labels: {stage: last}}}
  left: {after: [first], task: {type: echo, payload: {n: "${inputs.n + 1}"}}, retry: {max_attempts: 2}, beacon: {}}
  right: {after: [first], for_each: {count: 3}, task: {type: echo}, result_limit: 1MiB, place: {ports: {http: {}}}}
  first: {task: {type: echo}}
`))
	require.NoError(t, err)
	require.Len(t, d.Steps, 4)
	ids, levels := []string{}, []int{}
	for _, s := range plan.Steps {
		ids, levels = append(ids, s.ID), append(levels, s.Level)
	}
	require.Equal(t, []string{"first", "left", "right", "last"}, ids)
	require.Equal(t, []int{0, 1, 1, 2}, levels)
	left, right, last := plan.Steps[1], plan.Steps[2], plan.Steps[3]
	require.True(t, left.Dynamic)
	require.False(t, last.Dynamic)
	require.Equal(t, api.Unmarked, left.Safety)
	require.Equal(t, 2, left.Task.Retry.MaxAttempts)
	require.Equal(t, 5, right.Task.Retry.MaxAttempts)
	require.Equal(t, job.DefaultBeacon, left.Task.BeaconTimeout.Std())
	require.Equal(t, api.Fenced, last.Task.RetrySafety)
	require.Equal(t, map[string]string{"project": "film", "stage": "last"}, last.Task.Labels)
	require.Equal(t, "acme", last.Task.Tenant)
	require.Equal(t, api.PriorityHigh, last.Task.Priority)
	require.EqualValues(t, 1<<20, right.ResultLimit)
	require.Equal(t, api.Demand{Ports: map[string]api.PortDemand{"http": {}}}, right.Task.Place)
	require.Equal(t, job.DefaultParallel, right.Parallel)
	require.Equal(t, []string{"unmarked is the safety of first, left, right: an attempt that is lost with its agent " +
		"waits for a person; write safety: idempotent, fenced or at_most_once"},
		Warnings(d, plan))

	again, err := json.Marshal(plan)
	require.NoError(t, err)
	var read job.Plan
	require.NoError(t, json.Unmarshal(again, &read))
	require.Equal(t, *plan, read)
}

// TestJSONIsTheSame reads a definition back from its own JSON.
func TestJSONIsTheSame(t *testing.T) {
	t.Parallel()
	text := head + "steps: {a: {task: {type: echo}, for_each: '[1, 2]', tolerate: 1%, join: all}, b: {after: [a], task: " +
		"" + task + "}}"
	first, plan, err := Read("f.yaml", []byte(text))
	require.NoError(t, err)
	encoded, err := json.Marshal(first)
	require.NoError(t, err)
	second, same, err := Read("f.json", encoded)
	require.NoError(t, err)
	require.Equal(t, first, second)
	require.Equal(t, plan, same)
}

func TestEvaluate(t *testing.T) {
	t.Parallel()
	facts, err := FactsOf([]byte(`{"n": 3, "big": 9007199254740993, "name": "a\"b", "list": [1, 2.5]}`),
		[]byte(`{"list": {"status": "completed", "output": {"keys": ["x", "y"]}}}`), []byte(`{"id": "r-1"}`))
	require.NoError(t, err)
	var v Evaluator
	for text, want := range map[string]string{
		`"${inputs.n}"`:                              `3`,
		`"${inputs.big}"`:                            `9007199254740993`,
		`"${inputs.n * 2} of ${inputs.n}"`:           `"6 of 3"`,
		`"hello ${inputs.name}"`:                     `"hello a\"b"`,
		`"$${inputs.n}"`:                             `"${inputs.n}"`,
		`"${inputs.list}"`:                           `[1,2.5]`,
		`"all: ${inputs.list}"`:                      `"all: [1,2.5]"`,
		`{"a": ["${steps.list.output.keys[1]}", 7]}`: `{"a":["y",7]}`,
		`"${ {'a': inputs.n} }"`:                     `{"a":3}`,
		`"${'}'}"`:                                   `"}"`,
		`"${item.size() > 1 ? index : 0}"`:           `4`,
		`"${' x '.trim()}"`:                          `"x"`,
		`"${run.id}"`:                                `"r-1"`,
	} {
		spec, err := v.Task(t.Context(), &api.TaskSpec{Type: "echo", Cluster: "c", Payload: json.RawMessage(text)},
			facts, "ab", 4)
		require.NoError(t, err, text)
		require.JSONEq(t, want, string(spec.Payload), text)
	}
	for source, want := range map[string]string{
		`inputs.missing == 1`: "there is no missing in what it reads",
		`inputs.n`:            "gives a number, not true or false",
		`inputs.list.all(x, x > 0) && inputs.name.size() / 0 == 1`: "division by zero",
	} {
		_, err := v.Bool(t.Context(), source, facts)
		require.EqualError(t, err, want, source)
	}
	_, err = v.Bool(t.Context(),
		`lists.range(1000).all(a, lists.range(1000).all(b, lists.range(1000).all(c, a + b + c >= 0)))`, facts)
	require.EqualError(t, err, "takes more work than an expression may; do it in a task")

	list, err := v.Elements(t.Context(), &api.ForEach{List: "steps.list.output.keys"}, facts)
	require.NoError(t, err)
	require.Equal(t, []any{"x", "y"}, list)
	list, err = v.Elements(t.Context(), &api.ForEach{List: "lists.range(101)"}, facts)
	require.NoError(t, err)
	require.Len(t, list, 101, "an array")

	step := &job.PlannedStep{Step: api.Step{Output: map[string]string{"rows": "results.map(r, r.rows)",
		"missing": "failed"}}}
	output, err := v.StepOutput(t.Context(), step, facts, nil, []json.RawMessage{json.RawMessage(`{"rows": 2}`)},
		[]int{1})
	require.NoError(t, err)
	require.JSONEq(t, `{"rows": [2], "missing": [1]}`, string(output))
}

// Every definition among the examples is valid.
func TestExamples(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../examples/jobs/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		_, _, err = Read(file, text)
		require.NoError(t, err)
	}
}

func checkInputs(ctx context.Context, schema, inputs json.RawMessage) error {
	_, err := CheckInputs(ctx, schema, inputs)
	return err
}

func TestInputs(t *testing.T) {
	t.Parallel()
	schema := json.RawMessage(`{"type": "object", "required": ["bucket"], "properties": {"bucket": {"type": "string"}}}`)
	require.NoError(t, checkInputs(t.Context(), schema, json.RawMessage(`{"bucket": "docs"}`)))
	require.EqualError(t, checkInputs(t.Context(), schema, nil), "missing property 'bucket'")
	require.EqualError(t, checkInputs(t.Context(), schema, json.RawMessage(`{"bucket": 3}`)),
		`bucket: got number, want string; write text in quotes`)
	require.NoError(t, checkInputs(t.Context(), nil, json.RawMessage(`{"anything": 1}`)))
	require.Error(t, checkInputs(t.Context(), json.RawMessage(`{"$ref": "file:///etc/passwd"}`), nil))
}

func TestNumbersInMistakesKeepTheirDigits(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ schema, value, want string }{
		{`{"maximum": 9007199254740992}`, `9007199254740993`, ": maximum: got 9007199254740993, want 9007199254740992"},
		{`{"exclusiveMaximum": 0.1}`, `0.10`, ": exclusiveMaximum: got 0.1, want 0.1"},
		{`{"minimum": 1e30}`, `-1234567`, ": minimum: got -1234567, want 1000000000000000000000000000000"},
		{`{"exclusiveMinimum": 1e300}`, `1`, ": exclusiveMinimum: got 1, want 1e+300"},
		{`{"multipleOf": 1000}`, `1234.5`, ": multipleOf: got 1234.5, want 1000"},
		{`{"maxLength": 1}`, `"` + strings.Repeat("a", 1234) + `"`, ": maxLength: got 1234, want 1"},
		{`{"type": "object"}`, `[1, 1e400]`, ".1: the number is too large, or has more than 100 characters"},
		{`{"type": "string"}`, `{}`, ": got object, want string"},
	} {
		schema := json.RawMessage(`{"properties": {"n": ` + tc.schema + `}}`)
		err := checkInputs(t.Context(), schema, json.RawMessage(`{"n": `+tc.value+`}`))
		require.EqualError(t, err, "n"+tc.want, tc)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(head + "steps: {a: {task: {type: echo, payload: '${inputs.x}'}}}")
	f.Add(head + "steps: {a: {task: {type: echo}, after: [b]}, b: {task: {type: echo}, after: [a]}}")
	f.Fuzz(func(t *testing.T, text string) {
		_, plan, err := Read("f", []byte(text))
		var wrong *document.Error
		if err != nil && !errors.As(err, &wrong) || (err == nil) != (plan != nil) {
			t.Fatalf("%v, %v", plan, err)
		}
	})
}

// An event starts a run where its condition holds, with the key and the inputs that it gives.
func TestTriggers(t *testing.T) {
	t.Parallel()
	var v Evaluator
	const event = `{"id":"7","source":"/desk","type":"opened","data":{"ticket":"T-7","severity":4}}`
	for name, c := range map[string]struct {
		trigger api.EventTrigger
		starts  bool
		key     string
		inputs  string
		problem string
	}{
		"always":        {trigger: api.EventTrigger{}, starts: true},
		"holds":         {trigger: api.EventTrigger{Where: "event.data.severity >= 3"}, starts: true},
		"does not hold": {trigger: api.EventTrigger{Where: "event.data.severity > 4"}},
		"no such data":  {trigger: api.EventTrigger{Where: "event.data.color == 'red'"}, problem: "where: there is no color"},
		"key": {trigger: api.EventTrigger{Key: "event.source + event.data.ticket"}, starts: true,
			key: "/deskT-7"},
		"a key of a number": {trigger: api.EventTrigger{Key: "event.data.severity"}, starts: true, key: "4"},
		"an empty key":      {trigger: api.EventTrigger{Key: "''"}, problem: "key: gives an empty text"},
		"inputs": {trigger: api.EventTrigger{Inputs: []byte(`{"t":"${event.data.ticket}","n":"${event.data.severity}"}`)},
			starts: true, inputs: `{"t":"T-7","n":4}`},
		"wrong inputs": {trigger: api.EventTrigger{Inputs: []byte(`{"t":"${event.data.x}"}`)}, starts: true,
			problem: "inputs.t: there is no x"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			facts, err := EventFacts([]byte(event))
			require.NoError(t, err)
			starts, key, inputs, err := v.Trigger(t.Context(), &c.trigger, facts)
			if c.problem != "" {
				require.ErrorContains(t, err, c.problem)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.starts, starts)
			require.Equal(t, c.key, key)
			if c.inputs != "" {
				require.JSONEq(t, c.inputs, string(inputs))
			}
		})
	}
}

// A check says all that is wrong with a result.
func TestChecks(t *testing.T) {
	t.Parallel()
	var v Evaluator
	check := &api.StepCheck{Schema: []byte(`{"type":"object","required":["text","citations"],` +
		`"properties":{"text":{"maxLength":3}}}`),
		Rules: []api.CheckRule{{That: "result.citations.all(c, c in inputs.ids)", Else: "cite only what was fetched"}}}
	facts, err := FactsOf([]byte(`{"ids":["a","b"]}`), nil, nil)
	require.NoError(t, err)
	for result, want := range map[string][]string{
		`{"text":"abc","citations":["a"]}`:  nil,
		`{"text":"abcd","citations":["c"]}`: {"text: maxLength: got 4, want 3", "cite only what was fetched"},
		`{"text":"abc"}`: {"missing property 'citations'",
			"cite only what was fetched (there is no citations in what it reads)"},
		`"text"`: {`got string, want object`, "cite only what was fetched (there is no citations in what it reads)"},
	} {
		require.Equal(t, want, v.Check(t.Context(), check, facts, []byte(result)), result)
	}
}

func TestACheckedPortThatIsNotAskedForIsWarnedOf(t *testing.T) {
	t.Parallel()
	const text = "job: a\ncluster: c\ntype: service\ninstances:\n  task: {type: echo}\n"
	for more, warns := range map[string]bool{
		"  health: {tcp: {port: 8080}}": true,
		"  health: {http: {port: 8080}}\n  place: {ports: {http: {static: 9000}, more: {}}}":        true,
		"  health: {http: {port: 8080}}\n  place: {ports: {admin: {static: 9}, x: {static: 8080}}}": false,
		"  health: {command: [\"true\"]}": false,
		"  count: 2":                      false,
	} {
		d, plan, err := Read("f.yaml", []byte(text+more))
		require.NoError(t, err, more)
		require.Len(t, Warnings(d, plan), map[bool]int{true: 1}[warns], more)
	}
}

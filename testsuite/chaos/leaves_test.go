//go:build linux

package chaos

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"

	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
)

// leafEnv makes the test binary a leaf of a command's process tree: it holds a leafSpec. Its one argument is the leaf's
// name.
const leafEnv = "MAINSTAY_CHAOS_LEAF"

// leafSpec is what the command of an attempt tells its leaves.
type leafSpec struct {
	Task    string `json:"task"`
	Attempt int    `json:"attempt"`
	Agent   string `json:"agent"`
	Ledger  string `json:"ledger"`
	MS      int    `json:"ms"`
}

// leafBeat is how often a leaf writes that it lives. A leaf that is killed lived at least until the last time.
const leafBeat = 20 * time.Millisecond

// treeScript starts leaves as a child, as a grandchild, and in a session of its own, and waits for the first two. $0 is
// the test binary.
const treeScript = `
sh -c 'sh -c "\"$0\" grandchild; true" "$0"; true' "$0" &
(setsid sh -c '"$0" daemon; true' "$0" </dev/null >/dev/null 2>&1 &)
"$0" child; wait`

// handleExec runs the work as a command with child processes, which write into the ledger themselves.
func (w *worker) handleExec(ctx context.Context, t *agent.Task) (any, error) {
	return w.attempt(ctx, t, func(todo work) error {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		spec, err := json.Marshal(leafSpec{Task: t.ID, Attempt: t.Attempt, Agent: w.spec.ID, Ledger: w.spec.Ledger,
			MS: todo.MS})
		if err != nil {
			return err
		}
		command := *t
		if command.Payload, err = json.Marshal(agent.ExecPayload{Command: []string{"sh", "-c", treeScript, self},
			Env: map[string]string{leafEnv: string(spec)}}); err != nil {
			return err
		}
		_, err = agent.ExecHandler()(ctx, &command)
		return err
	})
}

// runLeaf is a leaf. It never returns.
func runLeaf(text string) {
	var spec leafSpec
	err := json.Unmarshal([]byte(text), &spec)
	if err == nil {
		err = liveAsLeaf(spec, os.Args[len(os.Args)-1])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "leaf:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func liveAsLeaf(spec leafSpec, name string) error {
	out, err := openLedger(spec.Ledger, 0)
	if err != nil {
		return err
	}
	mark := line{Kind: lineLeafBegin, Task: spec.Task, Attempt: spec.Attempt, Agent: spec.Agent, Note: name}
	out.write(mark)
	end := time.After(time.Duration(spec.MS) * time.Millisecond)
	beat := time.NewTicker(leafBeat)
	defer beat.Stop()
	for mark.Kind = lineLeaf; ; {
		select {
		case <-beat.C:
			out.write(mark)
		case <-end:
			out.write(mark)
			return nil
		}
	}
}

// leavesOf are the leaves of each task; end is when a leaf last wrote, or its begin.
func leavesOf(lines []line) map[string][]ran {
	type key struct {
		task string
		pid  int
	}
	open, leaves := map[key]*ran{}, map[string][]ran{}
	for _, l := range lines {
		k := key{l.Task, l.PID}
		switch l.Kind {
		case lineLeafBegin:
			open[k] = &ran{task: l.Task, number: l.Attempt, agent: l.Agent, pid: l.PID, begin: l.NS, end: l.NS,
				how: l.Note}
		case lineLeaf:
			if leaf := open[k]; leaf != nil {
				leaf.end = max(leaf.end, l.NS)
			}
		}
	}
	for _, leaf := range open {
		leaves[leaf.task] = append(leaves[leaf.task], *leaf)
	}
	for _, of := range leaves {
		slices.SortFunc(of, func(a, b ran) int {
			return cmp.Or(cmp.Compare(a.begin, b.begin),
				cmp.Compare(a.pid, b.pid))
		})
	}
	return leaves
}

// judgeLeaves is I2 and I3 for the processes of a command: those of an at_most_once task belong to one attempt, those
// of a fenced task never live in two places, and none outlives its attempt.
func (v *verdict) judgeLeaves(j *job, leaves, attempts []ran) {
	ends := map[int]int64{}
	for _, a := range attempts {
		ends[a.number] = a.end
	}
	for i, first := range leaves {
		if end := ends[first.number]; end != 0 && first.end > end {
			v.blame(&v.overlaps, "%s of task %s wrote %.0f ms after its attempt had ended: %s", first.how, j.id,
				float64(first.end-end)/1e6, told(leaves))
		}
		for _, second := range leaves[i+1:] {
			switch {
			case second.number == first.number && second.agent == first.agent:
			case j.safety == api.AtMostOnce:
				v.blame(&v.doubleBegins, "processes of at_most_once task %s began in two attempts: %s", j.id,
					told([]ran{first, second}))
			case j.safety == api.Fenced && second.begin < first.end:
				v.blame(&v.overlaps, "processes of fenced task %s lived in two places, for %.0f ms at least: %s", j.id,
					float64(min(first.end, second.end)-second.begin)/1e6, told([]ran{first, second}))
			}
		}
	}
}

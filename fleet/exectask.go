package fleet

import "slices"

// ExecType is the task type whose payload is a command to run.
const ExecType = "exec"

// NeedsTreeEnd reports whether the task may only go to agents that end all processes of a command: those that outlive their
// agent would run beside the next attempt of a fenced task, and unseen after the end of an at_most_once one.
func (s *TaskSpec) NeedsTreeEnd() bool { return needsTreeEnd(s.Type, s.Safety()) }

func needsTreeEnd(taskType string, safety RetrySafety) bool {
	return taskType == ExecType && (safety == Fenced || safety == AtMostOnce)
}

// endsTree reports whether the member may be given such a task as far as that is concerned.
func (m *Member) endsTree(taskType string, safety RetrySafety) bool {
	return m.EndsProcessTrees || !needsTreeEnd(taskType, safety)
}

// lackTreeEnd reports whether the members, of which there are some, lack only that.
func lackTreeEnd(members []*Member, taskType string, safety RetrySafety) bool {
	return len(members) > 0 && !slices.ContainsFunc(members, func(m *Member) bool { return m.endsTree(taskType, safety) })
}

// treeEndWords say what such an agent cannot do, and treeEndDo what to do.
func treeEndWords(safety RetrySafety) string {
	return "ends all processes of a command when it is lost, as a task of type exec that is " + string(safety) + " needs"
}

const treeEndDo = "start an agent of this release on Linux, or submit such work as idempotent"

package fleet

// ExecType is the task type whose payload is a command to run.
const ExecType = "exec"

// NeedsTreeEnd reports whether the task may only go to agents that end all processes of a command: those that outlive
// their agent would run beside the next attempt of a fenced task, and unseen after the end of an at_most_once one.
func (s *TaskSpec) NeedsTreeEnd() bool { return needsTreeEnd(s.Type, s.Safety()) }

func needsTreeEnd(taskType string, safety RetrySafety) bool {
	return taskType == ExecType && (safety == Fenced || safety == AtMostOnce)
}

// EndsTree reports whether the member ends all processes of a task's command, or the task does not need that.
func (m *Member) EndsTree(taskType string, safety RetrySafety) bool {
	return m.EndsProcessTrees || !needsTreeEnd(taskType, safety)
}

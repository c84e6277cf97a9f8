package fleet

// EndsTree reports whether the member ends all processes of a task's command, or the task does not need that.
func (m *Member) EndsTree(taskType string, safety RetrySafety) bool {
	return m.EndsProcessTrees || !needsTreeEnd(taskType, safety)
}

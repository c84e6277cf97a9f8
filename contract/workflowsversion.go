package contract

// WorkflowsVersion is raised when workflows change so that open ones of before cannot be replayed. Since the first
// release that must not happen (CONTRIBUTING.md, "Changing a workflow"); before it, raise it whenever a recorded
// history has to be recorded anew because it no longer replays. `mainstay dev` keeps it in its data directory and says
// so when it finds another one, instead of failing with every workflow.
const WorkflowsVersion = 4

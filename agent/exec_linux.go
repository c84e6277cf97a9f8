package agent

import "syscall"

// dieWithParent kills the command when the agent dies: its work is then given to another.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

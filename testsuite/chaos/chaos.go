// Package chaos breaks a running installation on purpose and checks from outside what came of it. A driver starts the
// control plane and the agents as processes of their own, injects faults by a seeded schedule, heals everything, waits,
// and compares what the API says with a ledger that only the agents write. docs/BENCHMARKS.md says what is checked.
package chaos

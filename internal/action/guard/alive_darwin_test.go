package guard_test

// isAlive reports whether the process exists. On macOS the first process reaps orphans.
func isAlive(pid int) bool { return anyExists(pid) }

//go:build linux || darwin

package guard

// Pid is the process ID of the guard process, 0 if there is none.
func (g *Guard) Pid() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.link == nil {
		return 0
	}
	return g.link.process.Process.Pid
}

//go:build linux || darwin

package guard

// Pid is the process ID of the guard process, 0 if there is none.
func (g *Guard) Pid() int {
	link := g.link.Load()
	if link == nil {
		return 0
	}
	return link.process.Process.Pid
}

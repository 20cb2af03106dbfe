package doctor

// full is about a server that can store nothing. Then heartbeats are not stored either,
// so that nodes which live look dead.
func (c *check) full() {
	if c.Full == "" {
		return
	}
	c.add(Error, "full", "server "+c.Survey.Server, "its storage is full: "+c.Full,
		"no slot is published, started or recorded, and every node looks dead", "free space on that disk: the server goes on by itself, and what was refused is published")
}

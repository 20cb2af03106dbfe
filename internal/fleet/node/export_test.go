package node

// MaxUnwatched is how many records Peers keeps without a watch before it forgets some.
const MaxUnwatched = maxUnwatched

// Seen returns how many records Peers keeps.
func (p *Peers) Seen() int { return len(p.seen) }

package job

import (
	"crypto/sha256"
)

// TraceID returns the ID of the trace of a slot and its parts: the first 16 bytes of the
// SHA-256 of "<namespace>/<slot ID>". It depends on names only, so every node that publishes
// or runs the slot continues the same trace, and you can find the trace by the slot ID.
func (s Slot) TraceID(namespace string) [16]byte {
	sum := sha256.Sum256([]byte(namespace + "/" + s.Whole().ID()))
	return [16]byte(sum[:16])
}

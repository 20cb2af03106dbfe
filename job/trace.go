package job

import (
	"crypto/sha256"
)

// TraceID is the ID of the trace of a slot and of all its shards, computed from its
// name alone, so that whoever publishes it, for whatever reason and as often as need
// be, begins or continues the same one, and anybody can look it up who has the slot
// ID. It is the first 16 bytes of the SHA-256 of "<namespace>/<slot ID>".
func (s Slot) TraceID(namespace string) [16]byte {
	sum := sha256.Sum256([]byte(namespace + "/" + s.Whole().ID()))
	return [16]byte(sum[:16])
}

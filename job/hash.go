package job

import (
	"hash/fnv"
	"io"
)

// stableHash spreads jobs over n places, the same on every machine and in every
// version: FNV-1a 64 over the job's name, a zero byte and the field's name,
// modulo n. Other clients compute it too: testdata/hash.json has vectors.
func stableHash(job, field string, n int) int {
	h := fnv.New64a()
	_, _ = io.WriteString(h, job+"\x00"+field) // a hash never fails
	return int(h.Sum64() % uint64(n))
}

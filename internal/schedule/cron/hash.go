package cron

import (
	"hash/fnv"
	"io"
)

// StableHash returns a number below n for a field of a job: FNV-1a 64 of the job's name, a
// zero byte and the field's name, modulo n. The field is "second", "minute", "hour", "dom",
// "month", "dow" or "spread". Clients in other languages compute it too, and
// job/testdata/hash.json has vectors, so it must never change.
func StableHash(job, field string, n int) int {
	h := fnv.New64a()
	_, _ = io.WriteString(h, job+"\x00"+field) // a hash never fails
	return int(h.Sum64() % uint64(n))
}

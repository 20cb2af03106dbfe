package kv

import (
	"context"
	"iter"
	"time"

	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/internal/core"
)

// Locks keeps, in the state bucket, one lock for each job that limits how many of its slots run
// at once (see job.Job.Guarded). Its methods are safe for concurrent use. Workers change a lock
// only by a write at its revision. Only RemoveUnreadable deletes a lock.
type Locks struct{ b wire.Bucket }

// lockKey returns the key of a job's lock. Job names have no dots, so no other kind of
// key has this form.
func lockKey(job string) string { return "lock." + job }

// Read returns the job's lock and its revision, as the stream's leader has them. Errors
// are those of Ledger.Read.
func (l *Locks) Read(ctx context.Context, name string) (core.Lock, uint64, error) {
	return read(ctx, l.b, lockKey(name), l.decode)
}

// decode decodes a lock and checks that it names the job of its key.
func (l *Locks) decode(e wire.Entry) (core.Lock, error) {
	lock, err := core.DecodeLock(e.Data)
	return checkKey(l.b, e, lock, err, lockKey(lock.Job), "lock: it names job", lock.Job)
}

// Write stores the lock if revision is its last one; 0 creates it. Errors are those of
// Ledger.Write.
func (l *Locks) Write(ctx context.Context, lock core.Lock, revision uint64) (uint64, error) {
	return wire.Await(func(answered func(uint64, error)) {
		w := l.b.Writing(ctx, lockKey(lock.Job), revision, answered)
		data, err := lock.AppendJSON(w.Data)
		w.SendValue(data, lock.Nonce, err)
	})
}

// List iterates over the locks of all jobs. A lock that cannot be read yields an error
// that wraps job.ErrInvalid or job.ErrVersion, and the iteration continues. Any other
// error ends it.
func (l *Locks) List(ctx context.Context) iter.Seq2[core.Lock, error] {
	return decodeEach(l.b.All(ctx, l.b.Stream, l.b.Subject(lockKey("*")), time.Time{}), func(e wire.Entry) (lock core.Lock, keep bool, err error) {
		if !e.Gone() {
			keep = true
			lock, err = l.decode(e)
		}
		return lock, keep, err
	})
}

package kv

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cronce-io/cronce/internal/broker/space"
	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// Jobs is the registry: one definition per job. Its methods are safe for
// concurrent use.
type Jobs struct {
	s *space.Space
	b wire.Bucket
}

// Read returns the job's entry and its revision, as the stream's leader has them. Errors
// are those of Ledger.Read, and *plans.EntryError.
func (j *Jobs) Read(ctx context.Context, name string) (plans.Entry, uint64, error) {
	e, revision, err := read(ctx, j.b, name, j.decode)
	if errors.Is(err, job.ErrNotFound) {
		err = job.ErrNotFound // leaves the bucket out, which users do not know; the caller names the job
	}
	return e, revision, err
}

// Write stores the definition if revision is the job's last one; 0 creates it. Errors are
// those of Ledger.Write, and job.ErrDenied.
func (j *Jobs) Write(ctx context.Context, d plans.Definition, revision uint64) (uint64, error) {
	return j.b.WriteValue(ctx, d.Job.Name, d.Nonce, d, revision)
}

// JobWrite is a definition to store if Revision is the job's last one.
type JobWrite struct {
	plans.Definition

	Revision uint64
}

// SendAll writes many definitions, in the given order, without blocking. It calls
// answered once for each, from any goroutine, with the index of the definition and the
// results of Write. answered must not block. The definitions must be of different jobs.
//
// If the stream allows atomic batches, up to 1,000 definitions travel in one, and a server that
// syncs each write syncs once for all of them. Each definition still has its own result: if a
// batch fails, its definitions are sent singly.
func (j *Jobs) SendAll(ctx context.Context, all []JobWrite, answered func(i int, revision uint64, err error)) {
	writes := make([]*wire.Writing, 0, len(all))
	for i, d := range all {
		w := j.b.Writing(ctx, d.Job.Name, d.Revision, func(won uint64, err error) { answered(i, won, err) })
		if data, err := d.MarshalJSON(); w.PrepareValue(data, d.Nonce, err) {
			writes = append(writes, w)
		}
	}
	j.b.SendAll(writes)
}

// Delete removes the job if revision is its last one. Errors are those of Write.
func (j *Jobs) Delete(ctx context.Context, name string, revision uint64) error {
	return j.b.Remove(ctx, name, revision)
}

// List returns the entries, oldest write first. It leaves out entries that cannot be
// read. Its error then joins a *plans.EntryError for each of them, and the other entries
// are still returned.
func (j *Jobs) List(ctx context.Context) ([]plans.Entry, error) {
	var entries []plans.Entry
	var bad []error
	for e, err := range j.b.All(ctx, j.b.Stream, "", time.Time{}) {
		if err != nil {
			return nil, err
		}
		if e.Gone() {
			continue
		}
		d, err := j.decode(e)
		if err != nil {
			bad = append(bad, err)
			continue
		}
		entries = append(entries, d)
	}
	return entries, errors.Join(bad...)
}

// Revision returns the registry's last revision, as the stream's leader has it. No entry
// has a higher one.
func (j *Jobs) Revision(ctx context.Context) (uint64, error) {
	return j.s.LastSequence(ctx, "look at bucket "+j.b.Name, j.b.Stream)
}

// Watch calls f for every stored job, then once with Ready, then for every change. It makes one
// call at a time, in the broker's order. It returns nil when ctx ends, and wire.ErrGone when the
// bucket is removed or created again. Of several writes that follow each other quickly, or while
// the connection is down, it may report only the last. Whenever no change is outstanding, it calls
// f with Settled.
func (j *Jobs) Watch(ctx context.Context, f func(plans.RegistryEvent)) error {
	type read struct {
		plans.Entry
		err error
	}
	decode := func(e wire.Entry) any {
		d, err := j.decode(e)
		return read{d, err}
	}
	return j.s.Watch(ctx, j.b, true, decode, func(c wire.Change) {
		ev := plans.RegistryEvent{Name: c.Key, Revision: c.Revision, Time: c.Time}
		switch c.Kind {
		case wire.Ready:
			ev.Ready = true
		case wire.Settled:
			ev.Settled = true
		case wire.Removed:
			ev.Deleted = true
		default:
			r := c.Value.(read)
			if ev.Entry, ev.Err = r.Entry, r.err; ev.Err == nil {
				ev.Entry.Job.Name = c.Key // an equal string that the watch keeps anyway: saves the memory of a second one
			}
		}
		f(ev)
	})
}

func (j *Jobs) decode(e wire.Entry) (plans.Entry, error) {
	d, err := j.s.Plans.Entry(e.Data, e.Revision, e.Time)
	if err == nil && d.Job.Name != j.b.Key(e.Subject) {
		err = fmt.Errorf("%w job definition: it names %q", job.ErrInvalid, d.Job.Name)
	}
	if err != nil {
		return plans.Entry{}, &plans.EntryError{Name: j.b.Key(e.Subject), Revision: e.Revision, Time: e.Time.UTC(), Err: err}
	}
	return d, nil
}

// Latest returns the entries of the named jobs, with requests that name many jobs each. Any
// replica answers, so an entry may be stale. If the caller writes at the revision of a stale
// entry, it gets a conflict. Latest leaves out jobs that do not exist or cannot be read.
func (j *Jobs) Latest(ctx context.Context, names []string) (map[string]plans.Entry, error) {
	known := make(map[string]plans.Entry, len(names))
	err := j.b.EachLatest(ctx, len(names), func(i int) string { return names[i] }, func(found []wire.Entry) {
		found = slices.DeleteFunc(found, wire.Entry.Gone)
		for _, e := range wire.OnAllCores(found, func(e wire.Entry) plans.Entry {
			d, _ := j.decode(e)
			return d
		}) {
			if e.Job.Name != "" {
				known[e.Job.Name] = e
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return known, nil
}

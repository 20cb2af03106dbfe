package kv

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// Jobs is the registry: one definition per job. Its methods are safe for
// concurrent use.
type Jobs struct{ s *Store }

// bucket returns the registry's bucket. A denied write ends with an error: operators, and
// nodes without that permission, need to learn it at once.
func (j *Jobs) bucket() bucket {
	b := j.s.bucket("jobs")
	b.tellDenied, b.atomic = true, j.s.atomic
	return b
}

// Read returns the job's entry and its revision, as the stream's leader has them. Errors
// are those of Ledger.Read, and *core.EntryError.
func (j *Jobs) Read(ctx context.Context, name string) (core.Entry, uint64, error) {
	e, err := j.bucket().read(ctx, name)
	if err != nil {
		return core.Entry{}, e.revision, err
	}
	d, err := j.decode(e)
	return d, e.revision, err
}

// Write stores the definition if revision is the job's last one; 0 creates it. Errors are
// those of Ledger.Write, and job.ErrDenied.
func (j *Jobs) Write(ctx context.Context, d core.Definition, revision uint64) (uint64, error) {
	return j.bucket().encode(ctx, d.Job.Name, d.Nonce, d, revision)
}

// JobWrite is a definition to store if Revision is the job's last one.
type JobWrite struct {
	core.Definition

	Revision uint64
}

// SendAll writes many definitions, in the given order, without blocking. It calls
// answered once for each, from any goroutine, with the index of the definition and the
// results of Write. answered must not block. The definitions must be of different jobs.
//
// If the stream allows atomic batches, some hundred definitions travel in one, and a
// server that syncs each write syncs once for all of them. Each definition still has its
// own result: if a batch fails, its definitions are sent singly.
func (j *Jobs) SendAll(ctx context.Context, all []JobWrite, answered func(i int, revision uint64, err error)) {
	b := j.bucket()
	writes := make([]*writing, 0, len(all))
	for i, d := range all {
		w := b.writing(ctx, d.Job.Name, d.Revision, func(won uint64, err error) { answered(i, won, err) })
		if data, err := d.MarshalJSON(); w.prepareValue(data, d.Nonce, err) {
			writes = append(writes, w)
		}
	}
	b.sendAll(ctx, writes)
}

// Delete removes the job if revision is its last one. Errors are those of Write.
func (j *Jobs) Delete(ctx context.Context, name string, revision uint64) error {
	return j.bucket().remove(ctx, name, revision)
}

// List returns the entries, oldest write first. It leaves out entries that cannot be
// read. Its error then joins a *core.EntryError for each of them, and the other entries
// are still returned.
func (j *Jobs) List(ctx context.Context) ([]core.Entry, error) {
	var entries []core.Entry
	var bad []error
	b := j.bucket()
	for e, err := range b.all(ctx, b.stream(), "", time.Time{}) {
		if err != nil {
			return nil, err
		}
		if e.gone() {
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
func (j *Jobs) Revision(ctx context.Context) (last uint64, err error) {
	b := j.bucket()
	err = j.s.ask(ctx, "look at bucket "+b.name, j.s.api("STREAM.INFO."+b.stream()), func(ctx context.Context) error {
		stream, err := j.s.js.Stream(ctx, b.stream())
		if err == nil {
			last = stream.CachedInfo().State.LastSeq
		}
		return err
	})
	return last, err
}

// Watch calls f for every stored job, then once with Ready, then for every change. It
// makes one call at a time, in the broker's order, until ctx ends (nil) or the bucket is
// removed or created anew (ErrGone). If several writes follow each other quickly, or
// while the connection is down, it may report only the last. Whenever no change is
// outstanding, it calls f with Settled.
func (j *Jobs) Watch(ctx context.Context, f func(core.RegistryEvent)) error {
	type read struct {
		core.Entry
		err error
	}
	decode := func(e entry) any {
		d, err := j.decode(e)
		return read{d, err}
	}
	return j.s.watch(ctx, j.bucket(), true, decode, func(c change) {
		ev := core.RegistryEvent{Name: c.key, Revision: c.revision, Time: c.time}
		switch c.kind {
		case ready:
			ev.Ready = true
		case settled:
			ev.Settled = true
		case removed:
			ev.Deleted = true
		default:
			r := c.value.(read)
			if ev.Entry, ev.Err = r.Entry, r.err; ev.Err == nil {
				ev.Entry.Job.Name = c.key // equal strings; this one is shared
			}
		}
		f(ev)
	})
}

func (j *Jobs) decode(e entry) (core.Entry, error) {
	b := j.bucket()
	d, err := j.s.plans.Entry(e.data, e.revision, e.time)
	if err == nil && d.Job.Name != b.key(e.subject) {
		err = fmt.Errorf("%w job definition: it names %q", job.ErrInvalid, d.Job.Name)
	}
	if err != nil {
		return core.Entry{}, &core.EntryError{Name: b.key(e.subject), Revision: e.revision, Time: e.time.UTC(), Err: err}
	}
	return d, nil
}

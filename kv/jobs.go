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

// bucket tells who may not write: people, and nodes whose part it is not, want to
// know it, and not to wait.
func (j *Jobs) bucket() bucket {
	b := j.s.bucket("jobs")
	b.tellDenied, b.atomic = true, j.s.atomic
	return b
}

// Read returns the job's entry and its revision, as the stream's leader has it.
// Errors are those of Ledger.Read, and *job.EntryError.
func (j *Jobs) Read(ctx context.Context, name string) (core.Entry, uint64, error) {
	e, err := j.bucket().read(ctx, name)
	if err != nil {
		return core.Entry{}, e.revision, err
	}
	d, err := j.decode(e)
	return d, e.revision, err
}

// Write stores the definition if revision is the last one of its job: 0
// creates. Errors are those of Ledger.Write, and job.ErrDenied.
func (j *Jobs) Write(ctx context.Context, d core.Definition, revision uint64) (uint64, error) {
	return j.bucket().encode(ctx, d.Job.Name, d.Nonce, d, revision)
}

// JobWrite is a definition that is stored if Revision is the last one of its job.
type JobWrite struct {
	core.Definition

	Revision uint64
}

// SendAll is Write of many definitions, in the order given, without waiting: answered is
// called once for each of them, by its index and with what Write returns, from any
// goroutine. It must not block. The definitions must be of different jobs.
//
// Where the stream allows it, definitions travel in atomic batches of some hundreds, for
// which a server that syncs each write syncs once. Each is still written, or refused, on
// its own: a batch that fails is sent again definition by definition.
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

// Delete removes the job if revision is the last one of it. Errors are those of
// Write.
func (j *Jobs) Delete(ctx context.Context, name string, revision uint64) error {
	return j.bucket().remove(ctx, name, revision)
}

// List returns the entries, oldest write first. Those that cannot be read are
// left out; the error, beside which the others are returned, joins a
// *job.EntryError for each.
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

// Revision is the registry's last one, as its leader has it: no entry has a newer.
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

// Watch calls f for every job that is stored, then once with Ready, then for
// every change, one call at a time in the broker's order, until ctx ends (nil)
// or the bucket is gone or made anew (ErrGone). Of several writes in quick succession,
// or while the broker is away, it may show the last only. Whenever nothing is missing,
// it calls f with Settled.
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
				ev.Entry.Job.Name = c.key // the same, and one string
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

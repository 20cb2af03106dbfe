package stream

import (
	"context"
	"errors"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/internal/core"
)

// Lines are the lines of all jobs: the slots that wait until other slots of their jobs have ended.
// Its methods are safe for concurrent use.
type Lines struct{ s *Store }

// Lines returns the lines of the jobs.
func (s *Store) Lines() *Lines { return &Lines{s} }

// lineWindow is how many entries of a line are read at once.
const lineWindow = 50

func (l *Lines) subject(name string) string { return l.s.Namespace + ".wait." + name }

// Put puts a slot into its job's line. revision is that of the slot's record, which is Waiting. Put
// repeats the message until it is answered or ctx ends, and the stream folds the copies. It returns
// the entry's sequence.
func (l *Lines) Put(ctx context.Context, e core.Entry, revision uint64) (sequence uint64, err error) {
	data, err := e.MarshalJSON()
	if err != nil {
		return 0, err
	}
	m := &nats.Msg{Subject: l.subject(e.Slot.Job), Data: data, Header: nats.Header{
		jetstream.MsgIDHeader:          {core.EntryID(e.Slot, revision)},
		jetstream.ExpectedStreamHeader: {l.s.WaitingStream()},
	}}
	err = l.s.Ask(ctx, "put "+e.Slot.ID()+" into the line of its job", m.Subject, func(ctx context.Context) error {
		reply, err := l.s.Request(ctx, m)
		if err != nil {
			return err
		}
		ack, err := wire.PubAck(reply)
		sequence = ack.Sequence()
		return err
	})
	return sequence, err
}

// Read returns the first entries of a job's line at or after a sequence, in stream order. If it
// returns none, there was none when the stream's leader answered. An entry that cannot be read has
// only its Sequence.
func (l *Lines) Read(ctx context.Context, name string, from uint64) (entries []core.Entry, err error) {
	err = l.s.UntilAnswered(ctx, "line of job "+name, func() error {
		found, _, err := l.s.Get(ctx, l.s.WaitingStream(), map[string]any{"seq": max(from, 1), "batch": lineWindow, "next_by_subj": l.subject(name)})
		if err != nil {
			return err
		}
		if len(found) == 0 { // any replica has answered, and it may lag
			e, err := l.s.Next(ctx, l.s.WaitingStream(), l.subject(name), max(from, 1))
			switch {
			case errors.Is(err, wire.ErrNothing):
				entries = nil
				return nil
			case err != nil:
				return err
			}
			found = []wire.Entry{e}
		}
		entries = make([]core.Entry, 0, len(found))
		for _, e := range found {
			entry, _ := core.DecodeEntry(name, e.Data) // an entry that cannot be read is passed over
			entry.Sequence = e.Revision
			entries = append(entries, entry)
		}
		return nil
	})
	return entries, err
}

// Purge removes the entries of a job's line before a sequence.
func (l *Lines) Purge(ctx context.Context, name string, before uint64) error {
	return l.s.Ask(ctx, "purge the line of job "+name, l.s.API("STREAM.PURGE."+l.s.WaitingStream()), func(ctx context.Context) error {
		stream, err := l.s.JS.Stream(ctx, l.s.WaitingStream())
		if err != nil {
			return err
		}
		return stream.Purge(ctx, jetstream.WithPurgeSubject(l.subject(name)), jetstream.WithPurgeSequence(before))
	})
}

// Counts returns how many entries the line of each job has, as the stream's leader counts them. Entries
// of slots that were called count until they are purged.
func (l *Lines) Counts(ctx context.Context) (map[string]uint64, error) {
	counts, err := l.s.Counts(ctx, l.s.WaitingStream(), l.subject("*"))
	all := make(map[string]uint64, len(counts))
	for subject, n := range counts {
		all[strings.TrimPrefix(subject, l.subject(""))] = n
	}
	return all, err
}

package kv

import (
	"context"
	"strings"

	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
)

// Leftovers finds and removes the keys of the state bucket whose job or node is gone: locks, alert states and lists of
// handlers. Its methods are safe for concurrent use.
type Leftovers struct {
	s           *Store
	state, jobs wire.Bucket
}

// Leftovers returns the store of what jobs and nodes leave behind.
func (s *Store) Leftovers() *Leftovers {
	return &Leftovers{s, s.bucketFailingDenied("state"), s.bucketFailingDenied("jobs")}
}

// Kinds of keys of the state bucket that name a job or a node.
const (
	LeftLock     = "lock"
	LeftAlert    = "alert"
	LeftHandlers = "handlers"
)

// Names returns the jobs or nodes that have a key of the kind, also if it was removed lately. It reads no values.
func (l *Leftovers) Names(ctx context.Context, kind string) ([]string, error) {
	return l.names(ctx, l.state, l.state.Subject(kind+"."), "*")
}

// Jobs returns the jobs in the registry, and those that were removed in the last day.
func (l *Leftovers) Jobs(ctx context.Context) ([]string, error) {
	return l.names(ctx, l.jobs, l.jobs.Subject(""), "*")
}

func (l *Leftovers) names(ctx context.Context, b wire.Bucket, prefix, of string) ([]string, error) {
	counts, err := l.s.Counts(ctx, b.Stream, prefix+of)
	names := make([]string, 0, len(counts))
	for subject := range counts {
		names = append(names, strings.TrimPrefix(subject, prefix))
	}
	return names, err
}

// Node returns the record of a node, and Lock the lock of a job, as their leaders have them.
func (l *Leftovers) Node(ctx context.Context, name string) (exchange.NodeEvent, error) {
	return l.s.Nodes().Read(ctx, name)
}

func (l *Leftovers) Lock(ctx context.Context, name string) (core.Lock, uint64, error) {
	return l.s.Locks().Read(ctx, name)
}

// Revision returns the revision of a key, as the stream's leader has it. Its errors are those of Ledger.Read.
func (l *Leftovers) Revision(ctx context.Context, kind, name string) (uint64, error) {
	e, err := l.state.Read(ctx, kind+"."+name)
	return e.Revision, err
}

// Remove removes a key if revision is its last one. Its errors are those of Ledger.Write, and job.ErrDenied.
func (l *Leftovers) Remove(ctx context.Context, kind, name string, revision uint64) error {
	return l.state.Remove(ctx, kind+"."+name, revision)
}

package memstore

import (
	"context"
	"errors"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
)

// Nodes is a kv.Nodes in memory, with the same methods.
type Nodes struct{ *Bucket }

func (n *Nodes) Read(ctx context.Context, name string) (exchange.NodeEvent, error) {
	e, err := n.read(ctx, name)
	if err != nil {
		return exchange.NodeEvent{Revision: e.revision}, err
	}
	ev := nodeEvent(e)
	return ev, ev.Err
}

func (n *Nodes) Write(ctx context.Context, node exchange.Node, revision uint64) (uint64, error) {
	return n.put(ctx, node.Name, node.Nonce, node, revision)
}

func (n *Nodes) List(context.Context) ([]exchange.NodeEvent, error) {
	all, _, _ := n.snapshot()
	var nodes []exchange.NodeEvent
	for _, e := range all {
		if e.data != nil {
			nodes = append(nodes, nodeEvent(e))
		}
	}
	return nodes, nil
}

func (n *Nodes) Watch(ctx context.Context, f func(exchange.NodeEvent)) error {
	return n.watch(ctx, func(e entry) { f(nodeEvent(e)) },
		func(e entry) { f(exchange.NodeEvent{Name: e.key, Revision: e.revision, Time: e.at, Gone: true}) },
		func(last uint64) { f(exchange.NodeEvent{Ready: true, Revision: last}) })
}

func nodeEvent(e entry) exchange.NodeEvent {
	ev := exchange.NodeEvent{Name: e.key, Revision: e.revision, Time: e.at}
	ev.Node, ev.Err = exchange.DecodeNode(e.data)
	return ev
}

// Jobs is a kv.Jobs in memory, with the methods that tests need.
type Jobs struct{ *Bucket }

func (j *Jobs) Read(ctx context.Context, name string) (plans.Entry, uint64, error) {
	e, err := j.read(ctx, name)
	if err != nil {
		return plans.Entry{}, e.revision, err
	}
	d, err := decodeEntry(e)
	return d, e.revision, err
}

func decodeEntry(e entry) (plans.Entry, error) {
	d, err := plans.DecodeEntry(e.data, e.revision, e.at)
	if err != nil {
		return plans.Entry{}, &plans.EntryError{Name: e.key, Revision: e.revision, Time: e.at.UTC(), Err: err}
	}
	return d, nil
}

func (j *Jobs) Write(ctx context.Context, d plans.Definition, revision uint64) (uint64, error) {
	return j.put(ctx, d.Job.Name, d.Nonce, d, revision)
}

func (j *Jobs) Delete(ctx context.Context, name string, revision uint64) error {
	_, err := j.write(ctx, write{name, nil, revision})
	return err
}

func (j *Jobs) List(context.Context) ([]plans.Entry, error) {
	all, _, _ := j.snapshot()
	var entries []plans.Entry
	var bad []error
	for _, e := range all {
		if e.data == nil {
			continue
		}
		d, err := decodeEntry(e)
		if err != nil {
			bad = append(bad, err)
			continue
		}
		entries = append(entries, d)
	}
	return entries, errors.Join(bad...)
}

func (j *Jobs) Watch(ctx context.Context, f func(plans.RegistryEvent)) error {
	return j.watch(ctx,
		func(e entry) {
			ev := plans.RegistryEvent{Name: e.key, Revision: e.revision, Time: e.at}
			ev.Entry, ev.Err = decodeEntry(e)
			f(ev)
		},
		func(e entry) { f(plans.RegistryEvent{Name: e.key, Revision: e.revision, Time: e.at, Deleted: true}) },
		func(last uint64) { f(plans.RegistryEvent{Ready: true, Revision: last}) })
}

// Watermark is a kv.Watermark in memory, with the same methods.
type Watermark struct{ *Bucket }

func (w *Watermark) Read(ctx context.Context) (exchange.Watermark, uint64, error) {
	return get(ctx, w.Bucket, watermarkKey, exchange.DecodeWatermark)
}

func (w *Watermark) Write(ctx context.Context, mark exchange.Watermark, revision uint64) (uint64, error) {
	return w.put(ctx, watermarkKey, mark.Nonce, mark, revision)
}

// AlertStates is a kv.AlertStates in memory, with the same methods.
type AlertStates struct{ *Bucket }

func (a *AlertStates) Read(ctx context.Context, name string) (exchange.AlertState, uint64, error) {
	return get(ctx, a.Bucket, "alert."+name, exchange.DecodeAlertState)
}

func (a *AlertStates) Write(ctx context.Context, state exchange.AlertState, revision uint64) (uint64, error) {
	return a.put(ctx, "alert."+state.Job, state.Nonce, state, revision)
}

// Locks is a kv.Locks in memory, with the methods that tests need.
type Locks struct{ *Bucket }

func (l *Locks) Read(ctx context.Context, name string) (core.Lock, uint64, error) {
	return get(ctx, l.Bucket, "lock."+name, core.DecodeLock)
}

func (l *Locks) Write(ctx context.Context, lock core.Lock, revision uint64) (uint64, error) {
	return l.put(ctx, "lock."+lock.Job, lock.Nonce, lock, revision)
}

package doctor

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/broker/space"
	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// Sources is where the facts come from.
type Sources struct {
	// Store is an open store. If it is nil, Gather opens the namespace Namespace on JetStream. What
	// Gather opens keeps a goroutine and a subscription until the connection is closed.
	Store     *kv.Store
	JetStream jetstream.JetStream
	Namespace string

	// Monitors are the URLs of monitoring ports: "http://host:8222".
	Monitors []string

	// Full asks the server why it can store nothing. It returns "" if the server can, or
	// does not say. Nil: the server is not asked.
	Full func(context.Context) string

	// Alive is called whenever the broker has answered. Required.
	Alive func()
}

const (
	// recently is how far back to look for refused completions.
	recently = 24 * time.Hour

	// recheckAfter is the time between two checks of a queue without requests.
	recheckAfter = 3 * time.Second
)

func (from Sources) examine(ctx context.Context) (*kv.Store, space.Survey, error) {
	if from.Store != nil {
		return from.Store.Examine(ctx)
	}
	return kv.Examine(ctx, from.JetStream, kv.Options{Namespace: from.Namespace})
}

// Gather asks the broker for everything that Check needs. If nothing of the namespace exists,
// the error is job.ErrNotFound. What exists but is wrong becomes a fact.
func Gather(ctx context.Context, from Sources) (*kv.Store, Facts, error) {
	var f Facts
	for _, url := range from.Monitors {
		m, err := AskMonitor(ctx, url)
		if err != nil {
			return nil, f, err
		}
		f.Monitors = append(f.Monitors, m)
	}
	store, survey, err := from.examine(ctx)
	if err != nil {
		return nil, f, err
	}
	from.Alive()
	f.Namespace, f.Survey = store.Namespace, survey
	if from.Full != nil && strings.HasPrefix(survey.Server, embedded) {
		f.Full = from.Full(ctx)
	}
	if !survey.Complete() {
		return store, f, nil
	}
	g := gatherer{store, from, &f}
	for _, part := range []func(context.Context) error{g.watermark, g.registry, g.nodes, g.strangers, g.handlers, g.readRefusals, g.readUnfinished, g.locks, g.sweepEnd, g.unread, g.nodeConsumers, g.unasked} {
		if err := part(ctx); err != nil {
			return nil, f, err
		}
		from.Alive()
	}
	return store, f, nil
}

type gatherer struct {
	*kv.Store
	from Sources
	f    *Facts
}

// watermark is read first: the registry is then at least as new.
func (g gatherer) watermark(ctx context.Context) error {
	g.f.Watermark, g.f.WatermarkRevision, g.f.WatermarkErr = g.Watermark().Read(ctx)
	if err := g.f.WatermarkErr; err != nil && !errors.Is(err, job.ErrNotFound) && !exchange.IsUnreadable(err) {
		return err
	}
	return nil
}

// unreadable reports whether err says that a value cannot be read, and records the value.
func (g gatherer) unreadable(err error) bool {
	if e, ok := errors.AsType[*kv.UnreadableError](err); ok {
		g.f.Unreadable = append(g.f.Unreadable, e)
	}
	return exchange.IsUnreadable(err)
}

func (g gatherer) registry(ctx context.Context) (err error) {
	g.f.Jobs, err = g.Jobs().List(ctx)
	if g.f.Broken, err = plans.SplitEntryErrors(err); err != nil {
		return err
	}
	g.f.RegistryRevision, err = g.Jobs().Revision(ctx)
	return err
}

// nodes are read before the time, so that no heartbeat is later than it.
func (g gatherer) nodes(ctx context.Context) (err error) {
	if g.f.Nodes, err = g.Nodes().List(ctx); err == nil {
		for _, n := range g.f.Nodes {
			g.unreadable(n.Err)
		}
		g.f.Now, err = g.Time(ctx)
		g.f.Local = time.Now()
	}
	return err
}

// strangers are the nodes of another fleet with the same namespace. The subjects of a namespace cross the
// connections between leaf nodes, and the records of nodes do not. A node that has just started has a
// record by the second look.
func (g gatherer) strangers(ctx context.Context) error {
	answered, err := g.PingNodes(ctx)
	if err != nil {
		return ctx.Err() // a login without the right learns nothing
	}
	unknown := func(nodes []exchange.NodeEvent) []string {
		return slices.DeleteFunc(slices.Clone(answered), func(name string) bool {
			return slices.ContainsFunc(nodes, func(e exchange.NodeEvent) bool { return e.Name == name })
		})
	}
	if len(unknown(g.f.Nodes)) == 0 {
		return nil
	}
	again, err := g.Nodes().List(ctx)
	if err == nil {
		g.f.Strangers = unknown(again)
	}
	return err
}

func (g gatherer) handlers(ctx context.Context) (err error) {
	var workers []string
	for _, n := range g.f.live() {
		if n.Worker {
			workers = append(workers, n.Name)
		}
	}
	g.f.Handlers, err = g.HandlerLists().Latest(ctx, workers)
	return err
}

func (g gatherer) readRefusals(ctx context.Context) error {
	for e, err := range g.Events(ctx, kv.EventFilter{Since: g.f.Now.Add(-recently)}) {
		g.from.Alive()
		if err != nil && !exchange.IsUnreadable(err) {
			return err
		}
		if _, hopeless := exchange.Undeliverable(e); err == nil && hopeless && g.f.Now.Sub(e.Time) < exchange.UndeliverableAge {
			if g.f.Undeliverable == nil {
				g.f.Undeliverable = map[string]job.Event{}
			}
			g.f.Undeliverable[e.Job] = e
		}
		if err == nil && e.Kind == job.EventRefused {
			g.f.Refused++
			g.f.Latest = e
		}
	}
	return nil
}

func (g gatherer) readUnfinished(ctx context.Context) error {
	for e, err := range g.Ledger().List(ctx, kv.ListFilter{}) {
		g.from.Alive()
		switch {
		case g.unreadable(err):
		case err != nil:
			return err
		case !e.State.Final():
			g.f.Open = append(g.f.Open, e)
		}
	}
	return nil
}

func (g gatherer) locks(ctx context.Context) error {
	g.f.Ended = map[job.Slot]time.Time{}
	for l, err := range g.Locks().List(ctx) {
		g.from.Alive()
		switch {
		case g.unreadable(err):
		case err != nil:
			return err
		case l.Waiting || l.Newest.After(g.f.Now):
			g.f.Locks = append(g.f.Locks, l)
		}
	}
	for _, l := range g.f.Locks {
		for _, h := range l.Holders {
			r, _, err := g.Ledger().Read(ctx, h.Slot)
			g.from.Alive()
			switch {
			case errors.Is(err, job.ErrNotFound):
				g.f.Ended[h.Slot] = time.Time{}
			case err != nil && !exchange.IsUnreadable(err):
				return err
			case err == nil && r.State.Final():
				g.f.Ended[h.Slot] = r.Finished
			}
		}
	}
	return nil
}

func (g gatherer) nodeConsumers(ctx context.Context) error {
	g.f.NodeConsumers = g.NodeConsumers(ctx, g.f.Jobs)
	return ctx.Err()
}

// unasked checks queues without requests a second time, because a worker has no request for a
// moment between two messages.
func (g gatherer) unasked(ctx context.Context) error {
	waits := slices.ContainsFunc(g.f.NodeConsumers, isUnasked)
	before := map[string]uint64{}
	for _, q := range g.f.Survey.Queues {
		if g.f.idle(q) {
			before[q.Name] = delivered(q)
		}
	}
	if len(before) == 0 && !waits {
		return nil
	}
	if !wire.Wait(ctx, recheckAfter) {
		return context.Cause(ctx)
	}
	_, survey, err := g.Examine(ctx)
	if err != nil {
		return err
	}
	g.from.Alive()
	for _, q := range survey.Queues {
		if seen, suspect := before[q.Name]; suspect && g.f.idle(q) && delivered(q) == seen {
			g.f.Unasked = append(g.f.Unasked, q.Name)
		}
	}
	for i, t := range g.NodeConsumers(ctx, g.f.Jobs) {
		if first := g.f.NodeConsumers[i]; isUnasked(first) && isUnasked(t) && t.Info.Delivered.Consumer == first.Info.Delivered.Consumer {
			g.f.UnaskedConsumers = append(g.f.UnaskedConsumers, i)
		}
	}
	return nil
}

package kv

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

type changeKind int

const (
	written changeKind = iota
	removed            // a marker was stored, or the value was collected
	ready              // everything stored at the start has been reported
	settled            // everything written up to the revision has been reported
)

// change is one event of a watch. Its entry's revision is the last revision of the bucket
// that the watch has seen, including this change.
type change struct {
	entry
	kind  changeKind
	key   string
	value any // decoded, of a written change
}

const (
	// auditEvery is the interval, give or take a quarter, at which a healthy watch verifies
	// that it is complete. In several versions of clients and servers, watches stalled or
	// skipped messages after a reconnect. Two numbers reveal that.
	auditEvery = 30 * time.Second

	// tailHeartbeat is the interval of the broker's idle heartbeats.
	tailHeartbeat = 5 * time.Second

	// tailThreshold is how long the broker keeps a consumer without requests.
	tailThreshold = time.Minute
)

// ErrGone reports that a stream or bucket of the namespace no longer exists, or is a
// different one: it was removed, created again, or restored from an older copy. See
// Store.SetUpAgain.
var ErrGone = errors.New("gone, or made anew")

// watch calls f for every change of the bucket until ctx ends (nil) or the bucket is gone
// (ErrGone). With whole, a bucket that was created again counts as gone. A session lists the
// bucket and then follows its stream. If anything goes wrong, or may have, the session ends,
// and the next one reports the differences. decode turns an entry into the change's value.
// During a listing it is called on all cores at once.
func (s *Store) watch(ctx context.Context, b bucket, whole bool, decode func(entry) any, f func(change)) error {
	w := watcher{bucket: b, store: s, decode: decode, tell: f, whole: whole, seen: map[string]sighting{}}
	pause := newPause()
	for {
		err := w.session(ctx, pause.Reset)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, jetstream.ErrStreamNotFound):
			return fmt.Errorf("watch %s: %w: %w", b.name, ErrGone, err)
		case errors.Is(err, ErrGone), errors.Is(err, nats.ErrConnectionClosed):
			return fmt.Errorf("watch %s: %w", b.name, err)
		case err != nil:
			s.log.Warn("watching again", "bucket", b.name, "reason", err)
			if !wait(ctx, pause.NextBackOff()) {
				return nil
			}
		}
	}
}

// watcher is the state of one watch.
type watcher struct {
	bucket
	store  *Store
	decode func(entry) any
	tell   func(change)
	whole  bool // a bucket that was created again ends the watch

	seen  map[string]sighting
	ready bool // the first listing was reported

	// last is the last revision that was seen, or up to which the leader has nothing left.
	// settled is the revision of the last settled change.
	last, settled uint64
}

// sighting is the last known state of a key: its revision, and in the top bit whether it is
// a marker. It is small because a watch may hold a million of them.
type sighting uint64

func sightingOf(revision uint64, gone bool) sighting {
	if gone {
		return sighting(revision | 1<<63)
	}
	return sighting(revision)
}

func (s sighting) revision() uint64 { return uint64(s) &^ (1 << 63) }
func (s sighting) gone() bool       { return s>>63 == 1 }

// session lists the bucket, then follows it until it may have missed something.
func (w *watcher) session(ctx context.Context, listed func()) error {
	// Subscribe before the listing, so that a reconnect during the listing ends the session.
	news := w.link().news()
	if err := w.list(ctx); err != nil {
		return err
	}
	listed()
	t, err := w.follow(ctx)
	if err != nil {
		return err
	}
	defer t.close()
	audit := time.NewTicker(w.store.audit*3/4 + rand.N(w.store.audit/2))
	defer audit.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-news:
			return nil
		case err := <-t.failed:
			return err
		case d := <-t.deliveries:
			switch {
			case w.told(d.entry):
			case d.gone():
				w.note(d.entry, nil)
			default:
				w.note(d.entry, w.decode(d.entry))
			}
			if d.pending == 0 {
				w.settle()
			}
		case <-audit.C:
			if complete, err := w.audit(ctx); err != nil || !complete {
				return err
			}
			w.settle()
		}
	}
}

// list reports what is stored and was not reported yet, in the stream's order. Then it
// reports the keys that have disappeared.
func (w *watcher) list(ctx context.Context) error {
	state, err := w.state(ctx)
	if err != nil {
		return err
	}
	if state.LastSeq < w.last {
		// The bucket was restored or created again, so its revisions start over.
		w.store.log.Warn("revisions went back: was the bucket restored?", "bucket", w.name, "from", w.last, "to", state.LastSeq)
		if w.whole {
			return ErrGone
		}
		w.last = 0
		for key, s := range w.seen {
			w.seen[key] = sightingOf(0, s.gone())
		}
	}
	there := make(map[string]bool, len(w.seen))
	again := len(w.seen) > 0
	for found, err := range ahead(ctx, func(ctx context.Context) iter.Seq2[[]entry, error] {
		return w.batches(ctx, w.stream(), "", time.Time{})
	}) {
		if err != nil {
			return err
		}
		fresh := slices.DeleteFunc(found, func(e entry) bool {
			if again {
				there[w.key(e.subject)] = true
			}
			return w.told(e)
		})
		values := onAllCores(fresh, func(e entry) any {
			if e.gone() {
				return nil
			}
			return w.decode(e)
		})
		for i, e := range fresh {
			w.note(e, values[i])
		}
	}
	for key := range w.seen {
		if !again || there[key] {
			continue
		}
		// The listing may have come from a replica that lags, so the leader decides. If the
		// leader has the key, following the stream delivers it.
		if _, err := w.wire.last(ctx, w.stream(), w.subject(key)); errors.Is(err, errNothing) {
			w.forget(key)
		} else if err != nil {
			return err
		}
	}
	complete, err := w.complete(ctx)
	if err != nil {
		return err
	}
	if !w.ready {
		w.ready = true
		w.tell(change{entry: entry{revision: w.last}, kind: ready})
	}
	if complete {
		w.settle()
	}
	return nil
}

// complete reports whether the listing showed everything that the stream's leader has. The
// last messages of a stream may be gone: a compaction removes markers and leaves only the
// stream's last sequence. So complete asks the leader for the first message after the last
// revision seen. If there is none, the watch knows every revision up to the leader's last.
func (w *watcher) complete(ctx context.Context) (bool, error) {
	state, err := w.state(ctx)
	if err != nil || state.LastSeq <= w.last {
		return err == nil, err
	}
	_, err = w.next(ctx, w.stream(), w.subject(">"), w.last+1)
	if errors.Is(err, errNothing) {
		w.last = state.LastSeq
		return true, nil
	}
	return false, err
}

// settle reports that nothing written up to the last revision is missing. During a listing
// a revision does not prove that: if a key was written twice, the listing shows only the
// later write, at its own place.
func (w *watcher) settle() {
	if w.ready && w.settled != w.last {
		w.settled = w.last
		w.tell(change{entry: entry{revision: w.last}, kind: settled})
	}
}

// told reports whether e, or a later entry of its key, was reported before.
func (w *watcher) told(e entry) bool {
	known, told := w.seen[w.key(e.subject)]
	return told && e.revision <= known.revision()
}

// note reports e. After the first listing it also reports markers, even those of unknown
// keys, because they carry the bucket's last revision.
func (w *watcher) note(e entry, value any) {
	// Clone the key: the subject is part of a whole answer, which it would keep in memory.
	key := strings.Clone(w.key(e.subject))
	w.seen[key], w.last = sightingOf(e.revision, e.gone()), max(w.last, e.revision)
	switch {
	case !e.gone():
		w.tell(change{e, written, key, value})
	case w.ready:
		w.tell(change{e, removed, key, nil})
	}
}

// forget reports that the value of key was collected, by age or by a purge.
func (w *watcher) forget(key string) {
	gone := w.seen[key].gone()
	delete(w.seen, key)
	if !gone {
		w.tell(change{entry{revision: w.last}, removed, key, nil})
	}
}

// audit reports whether the watch has seen everything that the stream's leader has.
func (w *watcher) audit(ctx context.Context) (complete bool, err error) {
	state, err := w.state(ctx)
	return state.LastSeq == w.last && state.Msgs == uint64(len(w.seen)), err
}

func (w *watcher) state(ctx context.Context) (state jetstream.StreamState, err error) {
	err = w.store.ask(ctx, "look at bucket "+w.name, w.api("STREAM.INFO."+w.stream()), func(ctx context.Context) error {
		stream, err := w.js.Stream(ctx, w.stream())
		if err == nil {
			state = stream.CachedInfo().State
		}
		return err
	})
	return state, err
}

// tail delivers what is written after a listing.
type tail struct {
	deliveries chan delivery
	failed     chan error
	close      func()
}

// delivery is one message of a tail. place is its number among the consumer's deliveries.
// pending counts the messages that were stored and not yet delivered when it was sent.
type delivery struct {
	entry
	place, pending uint64
}

// follow delivers what comes after the last revision seen. Its consumer lasts as long as
// the session, so the watch does not depend on a consumer's state across a reconnect.
func (w *watcher) follow(ctx context.Context) (*tail, error) {
	var c jetstream.Consumer
	err := w.store.ask(ctx, "watch bucket "+w.name, w.api("CONSUMER.CREATE."+w.stream()), func(ctx context.Context) (err error) {
		c, err = w.js.CreateConsumer(ctx, w.stream(), jetstream.ConsumerConfig{
			DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: w.last + 1,
			AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1, InactiveThreshold: tailThreshold,
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	messages, err := c.Messages(jetstream.PullHeartbeat(tailHeartbeat), jetstream.WithMessagesErrOnMissingHeartbeat(true))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	t := &tail{deliveries: make(chan delivery), failed: make(chan error, 1)}
	done := make(chan struct{})
	t.close = func() {
		cancel()
		aside(func() {
			messages.Stop()
			<-done
			// Best effort: the broker removes an idle consumer by itself.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), attemptTimeout)
			defer cancel()
			if w.link().connected.Load() {
				_ = w.js.DeleteConsumer(ctx, w.stream(), c.CachedInfo().Name)
			}
		})
	}
	go func() {
		defer close(done)
		for next := uint64(1); ; next++ {
			d, err := w.receive(messages)
			if err == nil && d.place != next {
				err = fmt.Errorf("the broker's delivery %d came after %d", d.place, next-1)
			}
			if err != nil {
				t.failed <- err
				return
			}
			select {
			case t.deliveries <- d:
			case <-ctx.Done():
				return
			}
		}
	}()
	return t, nil
}

// receive returns the next message of the consumer.
func (w wire) receive(messages jetstream.MessagesContext) (delivery, error) {
	m, err := messages.Next()
	if err != nil {
		return delivery{}, err
	}
	meta, err := m.Metadata()
	if err != nil {
		return delivery{}, err
	}
	e := entry{m.Subject(), meta.Sequence.Stream, w.stamped(meta.Timestamp), m.Headers(), m.Data()}
	return delivery{e, meta.Sequence.Consumer, meta.NumPending}, nil
}

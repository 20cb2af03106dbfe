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
	removed            // a marker was put there, or the value was collected
	ready              // all that was stored at the start has been seen
	settled            // nothing that was written up to the revision is missing
)

// change is one event of a watch. The entry's revision is the last one of the
// bucket that was seen, this change included.
type change struct {
	entry
	kind  changeKind
	key   string
	value any // of one that was written
}

const (
	// auditEvery is how often a watch that hears nothing wrong makes sure of it,
	// give or take a quarter. Watches have stalled and skipped after reconnects in
	// several versions of clients and servers; two numbers tell.
	auditEvery = 30 * time.Second

	// tailHeartbeat is how often the broker says that there is nothing to say.
	tailHeartbeat = 5 * time.Second

	// tailThreshold is when the broker forgets a consumer that nobody asks.
	tailThreshold = time.Minute
)

// ErrGone says that something of the namespace is not there any more, or is another one:
// it was removed, made anew, or restored from an older copy. See Store.SetUpAgain.
var ErrGone = errors.New("gone, or made anew")

// watch tells f every change of the bucket until ctx ends (nil) or the bucket
// is gone (ErrGone), with whole also if it was made anew. A session lists the bucket and then follows it; anything that goes
// wrong, or might have, ends the session, and the next one tells the differences.
// decode makes of a value what f wants of it; of a listing it is called on all cores.
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

// watcher is what a watch knows of its bucket.
type watcher struct {
	bucket
	store  *Store
	decode func(entry) any
	tell   func(change)
	whole  bool // a bucket that was made anew ends the watch

	seen  map[string]sighting
	ready bool // the first listing was told

	// last is the last revision that was seen, or that the leader says is gone
	// without a trace. settled is the one of the last settled change.
	last, settled uint64
}

// sighting is what stands under a key, as far as the watch knows: a revision, and in
// the first bit that it is a marker. There may be a million of them.
type sighting uint64

func sightingOf(revision uint64, gone bool) sighting {
	if gone {
		return sighting(revision | 1<<63)
	}
	return sighting(revision)
}

func (s sighting) revision() uint64 { return uint64(s) &^ (1 << 63) }
func (s sighting) gone() bool       { return s>>63 == 1 }

// session lists, then follows from there, until something might be amiss.
func (w *watcher) session(ctx context.Context, listed func()) error {
	// Before the listing, so that a reconnect in the middle of it counts.
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

// list tells what is stored and was not told yet, in the stream's order, then
// what was told and is gone.
func (w *watcher) list(ctx context.Context) error {
	state, err := w.state(ctx)
	if err != nil {
		return err
	}
	if state.LastSeq < w.last {
		// The bucket is another one, restored or made anew: revisions start over.
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
		// A replica that lags may have been asked: the leader decides. What it
		// does have comes again when the stream is followed.
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

// complete reports whether the listing showed all that the stream's leader has. The
// last messages of a stream may be gone: of markers, a compaction leaves nothing but
// the sequence, which the watermark may know. So the leader is asked what comes after
// the last revision seen. If it has nothing, all revisions up to its own are known.
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

// settle tells that nothing that was written up to the last revision is missing.
// In the middle of a listing a revision says less: of a key that was written twice
// only the later write is shown, in its place.
func (w *watcher) settle() {
	if w.ready && w.settled != w.last {
		w.settled = w.last
		w.tell(change{entry: entry{revision: w.last}, kind: settled})
	}
}

// told reports whether e, or what came after it, was told before.
func (w *watcher) told(e entry) bool {
	known, told := w.seen[w.key(e.subject)]
	return told && e.revision <= known.revision()
}

// note tells e. Markers are told once the first listing is done, of unknown keys
// too: they carry the bucket's last revision.
func (w *watcher) note(e entry, value any) {
	// A copy: the subject is a piece of a whole answer, which it would keep.
	key := strings.Clone(w.key(e.subject))
	w.seen[key], w.last = sightingOf(e.revision, e.gone()), max(w.last, e.revision)
	switch {
	case !e.gone():
		w.tell(change{e, written, key, value})
	case w.ready:
		w.tell(change{e, removed, key, nil})
	}
}

// forget tells that what stood under key was collected, by age or a purge.
func (w *watcher) forget(key string) {
	gone := w.seen[key].gone()
	delete(w.seen, key)
	if !gone {
		w.tell(change{entry{revision: w.last}, removed, key, nil})
	}
}

// audit reports whether the watch has seen what the stream's leader has.
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

// delivery is one message of a tail. place counts the consumer's deliveries, pending
// what was stored and not delivered when it was sent.
type delivery struct {
	entry
	place, pending uint64
}

// follow asks for what comes after the last revision seen, with a consumer that
// lives as long as the session: nothing of it has to be trusted over a reconnect.
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
			// Best effort: the broker forgets it by itself.
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

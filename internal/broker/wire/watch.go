package wire

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/broker/link"
)

// changeKind is the kind of a Change.
type changeKind int

const (
	written changeKind = iota // a value was stored
	Removed                   // a marker was stored, or the broker dropped the value by age or by a purge
	Ready                     // everything stored at the start has been reported
	Settled                   // everything written up to the revision has been reported
)

// Change is one event of a watch. Its entry's revision is the last revision of the bucket
// that the watch has seen, including this change.
type Change struct {
	Entry
	Kind  changeKind
	Key   string
	Value any // decoded, of a written change
}

const (
	// AuditEvery is the interval, plus or minus a quarter, at which a healthy watch verifies
	// that it is complete. In several versions of clients and servers, watches stalled or
	// skipped messages after a reconnect. The stream's last sequence and its number of messages
	// reveal that.
	AuditEvery = 30 * time.Second

	// tailHeartbeat is the interval of the broker's idle heartbeats.
	tailHeartbeat = 5 * time.Second

	// tailAtOnce is the number of changes in one request.
	tailAtOnce = 500

	// tailThreshold is how long the broker keeps a consumer without requests.
	tailThreshold = time.Minute

	// listEvery is the interval of listings while the broker refuses a consumer. A listing reads the
	// whole bucket.
	listEvery = 5 * time.Second

	complainEvery = time.Minute
)

// ErrGone reports that a stream or bucket of the namespace no longer exists, or is a
// different one: it was removed, created again, or restored from an older copy. See
// SetUpAgain of package space.
var ErrGone = errors.New("removed, or created again")

// Watch calls f for every change of the bucket. It returns nil when ctx ends, ErrGone when the
// bucket is gone, and an error when the connection is closed for good. If whole is true, a bucket
// that was created again or restored counts as gone. Otherwise the watch continues with the new
// revisions.
//
// A session lists the bucket and then follows its stream. If the session may have missed something,
// it ends, and the next one reports the differences. decode turns an entry into the change's value.
// During a listing, Watch calls decode on all cores at once.
func (b Bucket) Watch(ctx context.Context, log *slog.Logger, audit time.Duration, whole bool, decode func(Entry) any, f func(Change)) error {
	w := watcher{Bucket: b, log: log, auditEvery: audit, decode: decode, report: f, whole: whole, seen: map[string]sighting{}}
	pause := NewBackoff()
	for {
		err := w.session(ctx, pause.Reset)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, jetstream.ErrStreamNotFound):
			return fmt.Errorf("watch %s: %w: %w", b.Name, ErrGone, err)
		case errors.Is(err, ErrGone), errors.Is(err, nats.ErrConnectionClosed):
			return fmt.Errorf("watch %s: %w", b.Name, err)
		case err != nil:
			wait := pause.NextBackOff()
			if HasCode(err, codeMaxConsumers) {
				wait = listEvery
				err = fmt.Errorf("changes are only listed every %v, because the stream or the account may have no more consumers: raise max_consumers: %w", listEvery, err)
			}
			w.complain(err)
			if !Wait(ctx, wait) {
				return nil
			}
		}
	}
}

// complain logs why the session ended: the same reason once a minute.
func (w *watcher) complain(err error) {
	level := slog.LevelWarn
	if text := err.Error(); text == w.complaint && time.Since(w.complained) < complainEvery {
		level = slog.LevelDebug
	} else {
		w.complaint, w.complained = text, time.Now()
	}
	w.log.Log(context.Background(), level, "watch restarted", "bucket", w.Name, "error", err)
}

// watcher is the state of one watch.
type watcher struct {
	Bucket
	log        *slog.Logger
	auditEvery time.Duration // interval between audits, plus or minus a quarter
	decode     func(Entry) any
	report     func(Change)
	whole      bool // a bucket that was created again or restored ends the watch

	created time.Time // when the bucket was created; zero before the first listing
	seen    map[string]sighting
	ready   bool // the first listing was reported

	// last is the last revision that the watch has seen. If the leader has no later message,
	// last is the leader's last sequence, which may be higher. settled is the revision of the
	// last Settled change.
	last, settled uint64

	complaint  string // the last error that was logged, and when
	complained time.Time
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
func (s sighting) deleted() bool    { return s>>63 == 1 }

// session lists the bucket, then follows it until it may have missed something.
func (w *watcher) session(ctx context.Context, following func()) error {
	// Subscribe before the listing, so that a reconnect during the listing ends the session.
	news := w.Link().Changed()
	if err := w.list(ctx); err != nil {
		return err
	}
	t, err := w.startTail(ctx)
	if err != nil {
		return err
	}
	following()
	defer t.close()
	audit := time.NewTicker(w.auditEvery*3/4 + rand.N(w.auditEvery/2))
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
			case w.reported(d.Entry):
			case d.Gone():
				w.note(d.Entry, nil)
			default:
				w.note(d.Entry, w.decode(d.Entry))
			}
			if d.pending == 0 {
				w.reportSettled()
			}
		case <-audit.C:
			if complete, err := w.audit(ctx); err != nil || !complete {
				return err
			}
			w.reportSettled()
		}
	}
}

// list reports what is stored and was not reported yet, in the stream's order. Then it
// reports the keys that have disappeared.
func (w *watcher) list(ctx context.Context) error {
	info, err := w.info(ctx)
	if err != nil {
		return err
	}
	if info.State.LastSeq < w.last || !w.created.IsZero() && !info.Created.Equal(w.created) {
		// A revision stands for another write than before.
		w.log.Warn("the bucket was restored, or created again", "bucket", w.Name, "last_revision", w.last, "now", info.State.LastSeq, "created", info.Created)
		if w.whole {
			return ErrGone
		}
		w.last = 0
		for key, s := range w.seen {
			w.seen[key] = sightingOf(0, s.deleted())
		}
	}
	w.created = info.Created
	there := make(map[string]bool, len(w.seen))
	again := len(w.seen) > 0
	for found, err := range Ahead(ctx, func(ctx context.Context) iter.Seq2[[]Entry, error] {
		return w.Batches(ctx, w.Stream, "", time.Time{})
	}) {
		if err != nil {
			return err
		}
		fresh := slices.DeleteFunc(found, func(e Entry) bool {
			if again {
				there[w.Key(e.Subject)] = true
			}
			return w.reported(e)
		})
		values := OnAllCores(fresh, func(e Entry) any {
			if e.Gone() {
				return nil
			}
			return w.decode(e)
		})
		for i, e := range fresh {
			w.note(e, values[i])
		}
	}
	if again {
		if err := w.forgetMissing(ctx, there); err != nil {
			return err
		}
	}
	complete, err := w.complete(ctx)
	if err != nil {
		return err
	}
	if !w.ready {
		w.ready = true
		w.report(Change{Entry: Entry{Revision: w.last}, Kind: Ready})
	}
	if complete {
		w.reportSettled()
	}
	return nil
}

// forgetMissing reports the keys that the watch has seen and that are not in the listing. The
// listing may have come from a replica that lags, so the leader decides. If the leader has the key,
// following the stream delivers it.
func (w *watcher) forgetMissing(ctx context.Context, there map[string]bool) error {
	for key := range w.seen {
		if there[key] {
			continue
		}
		if _, err := w.Wire.Last(ctx, w.Stream, w.Subject(key)); errors.Is(err, ErrNothing) {
			w.forget(key)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// complete reports whether the listing showed everything that the stream's leader has. The
// last messages of a stream may be missing: a compaction removes markers and leaves only the
// stream's last sequence. So complete asks the leader for the first message after the last
// revision seen. If there is none, the watch knows every revision up to the leader's last.
func (w *watcher) complete(ctx context.Context) (bool, error) {
	info, err := w.info(ctx)
	if err != nil || info.State.LastSeq <= w.last {
		return err == nil, err
	}
	_, err = w.Next(ctx, w.Stream, w.Subject(">"), w.last+1)
	if errors.Is(err, ErrNothing) {
		w.last = info.State.LastSeq
		return true, nil
	}
	return false, err
}

// reportSettled reports that nothing written up to the last revision is missing. During a listing
// a revision does not prove that: if a key was written twice, the listing shows only the
// later write, at its own place.
func (w *watcher) reportSettled() {
	if w.ready && w.settled != w.last {
		w.settled = w.last
		w.report(Change{Entry: Entry{Revision: w.last}, Kind: Settled})
	}
}

// reported reports whether e, or a later entry of its key, was reported before.
func (w *watcher) reported(e Entry) bool {
	last, known := w.seen[w.Key(e.Subject)]
	return known && e.Revision <= last.revision()
}

// note reports e. After the first listing it also reports markers, even those of unknown
// keys, because they carry the bucket's last revision.
func (w *watcher) note(e Entry, value any) {
	// Clone the key: it is a part of the answer, and would keep all of it in memory.
	key := strings.Clone(w.Key(e.Subject))
	w.seen[key], w.last = sightingOf(e.Revision, e.Gone()), max(w.last, e.Revision)
	switch {
	case !e.Gone():
		w.report(Change{e, written, key, value})
	case w.ready:
		w.report(Change{e, Removed, key, nil})
	}
}

// forget reports that the broker dropped the value of key, by age or by a purge.
func (w *watcher) forget(key string) {
	gone := w.seen[key].deleted()
	delete(w.seen, key)
	if !gone {
		w.report(Change{Entry{Revision: w.last}, Removed, key, nil})
	}
}

// audit reports whether the watch has seen everything that the stream's leader has.
func (w *watcher) audit(ctx context.Context) (complete bool, err error) {
	info, err := w.info(ctx)
	if err != nil {
		return false, err
	}
	return info.Created.Equal(w.created) && info.State.LastSeq == w.last && info.State.Msgs == uint64(len(w.seen)), nil
}

// tail delivers what is written after a listing.
type tail struct {
	deliveries chan delivery
	failed     chan error
	close      func()
}

// delivery is one message of a tail. consumerSeq is its consumer sequence: 1, 2, 3 and so on.
// pending counts the messages that were stored and not yet delivered when the broker sent it.
type delivery struct {
	Entry
	consumerSeq, pending uint64
}

// startTail delivers what comes after the last revision seen. Its consumer lasts as long as
// the session, so the watch does not depend on a consumer's state across a reconnect.
func (w *watcher) startTail(ctx context.Context) (*tail, error) {
	c, err := w.follow(ctx, jetstream.ConsumerConfig{OptStartSeq: w.last + 1, InactiveThreshold: tailThreshold})
	if err != nil {
		return nil, err
	}
	messages, err := c.Messages(jetstream.PullMaxMessagesWithBytesLimit(tailAtOnce, w.PullBytes()), jetstream.PullHeartbeat(tailHeartbeat), jetstream.WithMessagesErrOnMissingHeartbeat(true))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	t := &tail{deliveries: make(chan delivery), failed: make(chan error, 1)}
	done := make(chan struct{})
	t.close = func() {
		cancel()
		link.Aside(func() {
			messages.Stop()
			<-done
			// Best effort: the broker removes an idle consumer by itself.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), AttemptTimeout)
			defer cancel()
			if w.Link().Connected.Load() {
				_ = w.JS.DeleteConsumer(ctx, w.Stream, c.CachedInfo().Name)
			}
		})
	}
	go func() {
		defer close(done)
		for next := uint64(1); ; next++ {
			d, err := w.receive(messages)
			if err == nil && d.consumerSeq != next {
				err = fmt.Errorf("the broker's delivery %d came after %d", d.consumerSeq, next-1)
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
func (w Wire) receive(messages jetstream.MessagesContext) (delivery, error) {
	m, err := messages.Next()
	if err != nil {
		return delivery{}, err
	}
	meta, err := m.Metadata()
	if err != nil {
		return delivery{}, err
	}
	e := Entry{m.Subject(), meta.Sequence.Stream, w.Stamped(meta.Timestamp), m.Headers(), m.Data()}
	return delivery{e, meta.Sequence.Consumer, meta.NumPending}, nil
}

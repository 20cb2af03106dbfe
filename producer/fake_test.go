package producer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// broker is what producers share: a registry, a stream that folds copies for ever (as the
// ledger does after the duplicate window), and the watermark. Its time is that of the
// synctest bubble.
type broker struct {
	t testing.TB

	mu       sync.Mutex
	away     bool
	restarts uint64
	answer   func(m core.Message) fault // nil: everything is stored
	log      []plans.RegistryEvent
	changed  chan struct{}
	stored   map[string]core.Message
	storedAt map[string]time.Time
	attempts []core.Message

	// Announcements: their listeners, their number, and which of them are lost.
	listeners map[*view]func(exchange.Announcement)
	announced int
	born      int
	lost      func(from, to *view) bool

	mark      exchange.Watermark
	markErr   error // it cannot be read
	markRev   uint64
	markWrite []time.Time
	check     func(exchange.Watermark) // called for every write of the watermark
}

// fault is what happens to one publication.
type fault int

const (
	fine     fault = iota
	refused        // not stored, an error
	lost           // stored, but the answer is lost
	inflight       // 10158: a copy is in flight
	silence        // neither stored nor answered
)

// answerTimeout is when an unanswered publication fails.
const answerTimeout = 5 * time.Second

var errAway = errors.New("no connection")

func newBroker(t testing.TB) *broker {
	return &broker{
		t: t, changed: make(chan struct{}), stored: map[string]core.Message{}, storedAt: map[string]time.Time{},
		listeners: map[*view]func(exchange.Announcement){},
	}
}

// apply upserts a job as an operator would, and returns its entry.
func (b *broker) apply(def job.Job) plans.Entry {
	return b.edit(def.Name, func(old *plans.Entry) (plans.Definition, bool) {
		d, change, err := plans.Upsert(old, def, "operator", "test", true)
		if err != nil {
			b.t.Fatal(err)
		}
		return d, change == plans.Changed
	})
}

// applyEach upserts n jobs that have a slot each second: job0, job1, ...
func (b *broker) applyEach(n int, policy job.CatchUpPolicy) {
	for i := range n {
		b.apply(every(fmt.Sprint("job", i), "* * * * * *", policy))
	}
}

func (b *broker) pause(name string) plans.Entry {
	return b.edit(name, func(old *plans.Entry) (plans.Definition, bool) { return plans.Pause(*old, "test") })
}

func (b *broker) resume(name string) plans.Entry {
	return b.edit(name, func(old *plans.Entry) (plans.Definition, bool) { return plans.Resume(*old, "test") })
}

// edit writes the definition that f returns for the job's entry, which is nil if there is none.
func (b *broker) edit(name string, f func(old *plans.Entry) (plans.Definition, bool)) plans.Entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	var old *plans.Entry
	for _, ev := range b.log {
		if ev.Name == name {
			old = &ev.Entry
			if ev.Deleted {
				old = nil
			}
		}
	}
	d, changed := f(old)
	if !changed {
		return *old
	}
	data, err := d.MarshalJSON()
	if err != nil {
		b.t.Fatal(err)
	}
	revision := uint64(len(b.log) + 1)
	e, err := plans.DecodeEntry(data, revision, time.Now())
	if err != nil {
		b.t.Fatal(err)
	}
	b.tell(plans.RegistryEvent{Name: name, Revision: revision, Entry: e, Time: time.Now()})
	return e
}

func (b *broker) delete(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tell(plans.RegistryEvent{Name: name, Revision: uint64(len(b.log) + 1), Deleted: true, Time: time.Now()})
}

func (b *broker) garble(name string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tell(plans.RegistryEvent{Name: name, Revision: uint64(len(b.log) + 1), Err: err, Time: time.Now()})
}

func (b *broker) tell(ev plans.RegistryEvent) {
	b.log = append(b.log, ev)
	close(b.changed)
	b.changed = make(chan struct{})
}

func (b *broker) setAway(away bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.away = away
}

// restart is so quick that no producer notices it by asking for its connection. The message IDs of
// slots that workers have acked are forgotten.
func (b *broker) restart() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.restarts++
	clear(b.stored)
}

// Reconnects returns how often the broker was restarted.
func (v *view) Reconnects() uint64 {
	v.broker.mu.Lock()
	defer v.broker.mu.Unlock()
	return v.restarts
}

func (b *broker) setAnswer(f func(core.Message) fault) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answer = f
}

// has returns what is stored of a job's slots: slot ID to "run", "caught up" or "missed". A slot in
// a range is missed, unless it has a message of its own.
func (b *broker) has(name string) map[string]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	has := map[string]string{}
	for id, m := range b.stored {
		if m.Slot.Job != name {
			continue
		}
		switch {
		case m.Slot.Range:
			for _, id := range b.members(m) {
				has[id] = cmp.Or(has[id], "missed")
			}
		case m.CaughtUp:
			has[id] = "caught up"
		default:
			has[id] = "run"
		}
	}
	return has
}

// members returns the slots of a range, which b.mu protects.
func (b *broker) members(m core.Message) (ids []string) {
	for _, ev := range b.log {
		if ev.Revision == m.JobRevision {
			for at := range ev.Entry.Slots(m.Slot.At.Add(-time.Second), m.MissedLast) {
				ids = append(ids, job.NewSlot(m.Slot.Job, at).ID())
			}
		}
	}
	if len(ids) < m.Missed {
		b.t.Errorf("%s counts %d slots, and %d lie between its ends", m.Slot, m.Missed, len(ids))
	}
	return ids
}

// ranges returns the ranges of a job that are stored.
func (b *broker) ranges(name string) (all []core.Message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.stored {
		if m.Slot.Job == name && m.Slot.Range {
			all = append(all, m)
		}
	}
	return all
}

// messages returns a copy of what is stored, by message ID.
func (b *broker) messages() map[string]core.Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.stored)
}

// take returns what producers have published since the last call, stored or not.
func (b *broker) take() []core.Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.attempts
	b.attempts = nil
	return all
}

func (b *broker) watermark() exchange.Watermark {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mark
}

// view is one producer's access to the broker.
type view struct {
	*broker
	offset time.Duration // of its clock
	error  time.Duration // of its estimate of the broker's clock; 2 ms by default

	mu     sync.Mutex
	deaf   bool // receives no changes
	cut    bool // has no connection, while others have one
	frozen chan struct{}

	nReads int // of the watermark

	refuse bool   // its publications are refused
	mute   bool   // its announcements are lost
	blind  string // a job whose definition has a newer format for this producer
}

// shown returns the event as the producer sees it.
func (v *view) shown(ev plans.RegistryEvent) plans.RegistryEvent {
	if ev.Name == v.blind && v.blind != "" && !ev.Deleted {
		return plans.RegistryEvent{Name: ev.Name, Revision: ev.Revision, Time: ev.Time, Err: job.ErrVersion}
	}
	return ev
}

// Announce reaches the others after a millisecond.
func (v *view) Announce(a exchange.Announcement) error {
	b := v.broker
	b.mu.Lock()
	defer b.mu.Unlock()
	b.announced++
	for to, hear := range b.listeners {
		if b.away || v.isMute() || v.isCut() || to.isCut() || b.lost != nil && b.lost(v, to) {
			continue
		}
		time.AfterFunc(time.Millisecond, func() { hear(a) })
	}
	return nil
}

func (v *view) Listen(f func(exchange.Announcement)) (stop func(), err error) {
	b := v.broker
	b.mu.Lock()
	defer b.mu.Unlock()
	b.listeners[v] = f
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.listeners, v)
	}, nil
}

func (v *view) isMute() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.mute
}

func (v *view) isCut() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.cut
}

// announcements returns how many were made since the last call.
func (b *broker) announcements() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.announced
	b.announced = 0
	return n
}

// late returns the stored slots that were later than most, and how late they were.
func (b *broker) late(most time.Duration) map[string]time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	late := map[string]time.Duration{}
	for id, m := range b.stored {
		if d := b.storedAt[id].Sub(m.Due); d > most {
			late[id] = d
		}
	}
	return late
}

// lateSince returns late for the slots that were due after the given time.
func (b *broker) lateSince(since time.Time, most time.Duration) map[string]time.Duration {
	late := b.late(most)
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(late, func(id string, _ time.Duration) bool { return !b.stored[id].Due.After(since) })
	return late
}

// reads returns how often the producer has read the watermark since the last call.
func (b *broker) reads(v *view) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := v.nReads
	v.nReads = 0
	return n
}

// deafen withholds the registry's changes from the producer, or lets it catch up.
func (v *view) deafen(deaf bool) {
	v.mu.Lock()
	v.deaf = deaf
	v.mu.Unlock()
	v.broker.mu.Lock()
	defer v.broker.mu.Unlock()
	close(v.changed)
	v.changed = make(chan struct{})
}

func (v *view) cutOff() (mend func()) {
	set := func(cut bool) {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.cut = cut
	}
	set(true)
	return func() { set(false) }
}

// freeze stops the process, as far as it can notice, until thaw is called.
func (v *view) freeze() (thaw func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	frozen := make(chan struct{})
	v.frozen = frozen
	return func() { close(frozen) }
}

func (v *view) Now() time.Time {
	v.mu.Lock()
	defer v.mu.Unlock()
	return time.Now().Add(v.offset)
}

func (v *view) Error() time.Duration { return cmp.Or(v.error, 2*time.Millisecond) }

// Plausible fails beyond an hour, as by default.
func (v *view) Plausible() error {
	if time.Until(v.Now()).Abs() > time.Hour {
		return errors.New("too far apart")
	}
	return nil
}

func (v *view) step(d time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.offset += d
}

func (v *view) Connected() bool {
	v.mu.Lock()
	frozen, cut := v.frozen, v.cut
	v.mu.Unlock()
	if frozen != nil {
		<-frozen
	}
	if cut {
		return false
	}
	v.broker.mu.Lock()
	defer v.broker.mu.Unlock()
	return !v.broker.away
}

func (v *view) Watch(ctx context.Context, fn func(plans.RegistryEvent)) error {
	b := v.broker
	b.mu.Lock()
	current := map[string]plans.RegistryEvent{}
	for _, ev := range b.log {
		current[ev.Name] = ev
	}
	last := len(b.log)
	b.mu.Unlock()
	for _, ev := range slices.SortedFunc(maps.Values(current), func(a, b plans.RegistryEvent) int { return int(a.Revision) - int(b.Revision) }) {
		if !ev.Deleted {
			fn(v.shown(ev))
		}
	}
	fn(plans.RegistryEvent{Ready: true, Revision: uint64(last)})
	for {
		b.mu.Lock()
		changed, fresh := b.changed, slices.Clone(b.log[last:])
		b.mu.Unlock()
		v.mu.Lock()
		deaf := v.deaf
		v.mu.Unlock()
		if !deaf {
			for _, ev := range fresh {
				fn(v.shown(ev))
			}
			if last += len(fresh); len(fresh) > 0 {
				fn(plans.RegistryEvent{Settled: true, Revision: uint64(last)})
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

func (v *view) Send(queue string, m core.Message, payload []byte, answered func(bool, error)) error {
	b := v.broker
	b.mu.Lock()
	defer b.mu.Unlock()
	b.attempts = append(b.attempts, m)
	if b.away {
		return errAway
	}
	f := fine
	v.mu.Lock()
	if v.refuse {
		f = refused
	}
	v.mu.Unlock()
	if f == fine && b.answer != nil {
		f = b.answer(m)
	}
	id := m.Header()[core.HeaderMsgID][0]
	_, duplicate := b.stored[id]
	if !duplicate && (f == fine || f == lost) {
		b.stored[id], b.storedAt[id] = m, time.Now()
	}
	wait, err := 3*time.Millisecond, error(nil)
	switch f {
	case lost, silence:
		wait, err = answerTimeout, job.ErrUnknown
	case inflight:
		err = fmt.Errorf("%w: duplicate message id is in process", job.ErrUnknown)
	case refused:
		err = errors.New("maximum bytes exceeded")
	}
	time.AfterFunc(wait, func() { answered(duplicate && err == nil, err) })
	return nil
}

func (v *view) Read(ctx context.Context) (exchange.Watermark, uint64, error) {
	b := v.broker
	b.mu.Lock()
	defer b.mu.Unlock()
	v.nReads++
	switch {
	case b.away:
		return exchange.Watermark{}, 0, errAway
	case b.markRev == 0:
		return exchange.Watermark{}, 0, job.ErrNotFound
	case b.markErr != nil:
		return exchange.Watermark{}, b.markRev, b.markErr
	}
	return b.mark, b.markRev, nil
}

func (v *view) Write(ctx context.Context, wm exchange.Watermark, revision uint64) (uint64, error) {
	b := v.broker
	for {
		b.mu.Lock()
		away := b.away
		b.mu.Unlock()
		if !away {
			break
		}
		if sleep(ctx, 100*time.Millisecond) != nil {
			return 0, job.ErrUnknown
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if revision != b.markRev {
		return 0, job.ErrConflict
	}
	if b.check != nil {
		b.check(wm)
	}
	b.mark, b.markRev, b.markErr = wm, b.markRev+1, nil
	b.markWrite = append(b.markWrite, time.Now())
	return b.markRev, nil
}

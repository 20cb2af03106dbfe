package intake_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/fleet/intake"
	"github.com/cronce-io/cronce/job"
)

// world is a broker in memory, for use in a bubble of synctest: streams, their
// consumers, a registry with one job, and the slots that were published.
type world struct {
	t testing.TB

	mu        sync.Mutex
	streams   map[string]*fakeStream
	consumers map[string]*consumer // by stream and name
	made      time.Duration        // makes the creation times of consumers differ
	entry     *plans.Entry         // nil: deleted
	broken    bool                 // the entry cannot be read
	revision  uint64
	put       func(core.Message) error // the result of Put
	slots     map[string]core.Message
	removed   []string

	unanswered int     // calls of RemoveOn that fail
	unbegun    []error // of the next calls of BeginOn
	leaderless string  // the stream about which OnConsumers gets no answer
}

type fakeStream struct {
	created   time.Time
	workQueue bool
	messages  []*message
}

type message struct {
	subject, id string
	sequence    uint64
	stored      time.Time
	gone        bool // acked, in a work queue, or replaced
}

type consumer struct {
	core.OnConsumer
	w         *world
	s         *fakeStream
	since     time.Time
	passed    uint64 // the last sequence that was considered
	delivered uint64 // deliveries, also repeated ones
	unacked   map[uint64]*delivery
	closed    bool
}

type delivery struct {
	number uint64 // of the first one: the ack floor goes by it
	due    time.Time
}

func newWorld(t testing.TB) *world {
	return &world{
		t: t, streams: map[string]*fakeStream{}, consumers: map[string]*consumer{}, slots: map[string]core.Message{},
		put: func(core.Message) error { return nil },
	}
}

func (w *world) stream(name string, workQueue bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for k, c := range w.consumers {
		if c.Stream == name {
			c.closed = true
			delete(w.consumers, k)
		}
	}
	w.streams[name] = &fakeStream{created: time.Now(), workQueue: workQueue}
}

// publish stores a message, and returns the token of the run that it should start.
func (w *world) publish(stream, subject, id string) string {
	return w.publishAt(stream, subject, id, time.Now())
}

// replace is publish to a stream that keeps one message of each subject.
func (w *world) replace(stream, subject string) {
	w.mu.Lock()
	s := w.streams[stream]
	for _, m := range s.messages {
		if m.subject != subject {
			continue
		}
		m.gone = true
		for _, c := range w.consumers {
			if c.s == s {
				delete(c.unacked, m.sequence)
			}
		}
	}
	w.mu.Unlock()
	w.publish(stream, subject, "")
}

// publishAt is publish by a leader of the stream whose clock shows stored.
func (w *world) publishAt(stream, subject, id string, stored time.Time) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.streams[stream]
	m := &message{subject: subject, id: id, sequence: uint64(len(s.messages) + 1), stored: stored}
	s.messages = append(s.messages, m)
	return core.StreamEvent{Stream: stream, Created: s.created, Sequence: m.sequence, Stored: m.stored, ID: id}.Token()
}

// define writes the job's definition as an operator does, and pause its pause.
func (w *world) define(j job.Job) plans.Entry { return w.write(j, nil) }

func (w *world) pause(paused bool) {
	w.write(w.entry.Job, func(d *plans.Definition) { d.Paused = paused })
}

func (w *world) write(j job.Job, edit func(*plans.Definition)) plans.Entry {
	w.mu.Lock()
	defer w.mu.Unlock()
	d, change, err := plans.Upsert(w.entry, j, plans.OwnerOperator, "test", true)
	if err != nil {
		w.t.Fatal(err)
	}
	if change == plans.Unchanged {
		d.Since = w.entry.Since()
	}
	if edit != nil {
		edit(&d)
	}
	data, err := json.Marshal(d)
	if err != nil {
		w.t.Fatal(err)
	}
	w.revision++
	e, err := plans.DecodeEntry(data, w.revision, time.Now())
	if err != nil {
		w.t.Fatal(err)
	}
	w.entry, w.broken = &e, false
	return e
}

func (w *world) set(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// run starts the intake of a producer. It gets each state of the registry after lag.
func (w *world) run(ctx context.Context, lag time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var seen sync.Mutex
	var entries []plans.Entry
	var all sync.WaitGroup
	if lag > 0 {
		all.Go(func() {
			for ctx.Err() == nil {
				now := w.messaged()
				select {
				case <-ctx.Done():
				case <-time.After(lag):
				}
				seen.Lock()
				entries = now
				seen.Unlock()
			}
		})
	}
	i := intake.New(intake.Config{
		Node: "p", Slots: w, Broker: w, Names: names, Read: w.read, Now: time.Now, Horizon: 24 * time.Hour,
		Jobs: func() []plans.Entry {
			if lag == 0 {
				return w.messaged()
			}
			seen.Lock()
			defer seen.Unlock()
			return entries
		},
		Open: func(_ context.Context, c core.OnConsumer) (intake.Feed, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			found := w.consumers[c.Stream+"/"+c.Name]
			if found == nil {
				return nil, jetstream.ErrConsumerNotFound
			}
			return feed{w, c.Stream, c.Name}, nil
		},
	})
	all.Go(func() { i.Run(ctx) })
	return func() { cancel(); all.Wait() }
}

func names(name string) []string { return []string{"c=" + name, "c=" + name + "=2"} }

func (w *world) messaged() []plans.Entry {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.entry == nil || w.broken || len(w.entry.OnPlans()) == 0 {
		return nil
	}
	return []plans.Entry{*w.entry}
}

func (w *world) read(context.Context, string) (plans.Entry, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.entry == nil:
		return plans.Entry{}, job.ErrNotFound
	case w.broken:
		return plans.Entry{}, &plans.EntryError{Name: w.entry.Job.Name, Err: errors.New("broken")}
	}
	return *w.entry, nil
}

func (w *world) Put(_ context.Context, queue string, m core.Message, _ []byte) (bool, error) {
	if err := codec.ValidateName("queue", queue); err != nil {
		return false, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.put(m); err != nil {
		return false, err
	}
	w.slots[m.Slot.ID()] = m
	return false, nil
}

func (w *world) OnConsumers(ctx context.Context, stream, name string) ([]core.OnConsumer, error) {
	w.mu.Lock()
	leaderless := w.leaderless
	w.mu.Unlock()
	if stream == leaderless {
		<-ctx.Done()
		return nil, job.ErrUnknown
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.streams[stream]
	if s == nil {
		return nil, job.ErrNotFound
	}
	var found []core.OnConsumer
	for _, n := range names(name) {
		if c := w.consumers[stream+"/"+n]; c != nil {
			found = append(found, c.OnConsumer)
		}
	}
	return found, nil
}

func (w *world) OldestQueued(_ context.Context, stream string) (oldest time.Time, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if stream == w.leaderless {
		return oldest, job.ErrUnknown
	}
	if s := w.streams[stream]; s != nil && s.workQueue {
		for _, m := range s.messages {
			if !m.gone {
				return m.stored, nil
			}
		}
	}
	return time.Time{}, nil
}

func (w *world) BeginOn(_ context.Context, _, name string, plan plans.PastPlan, since time.Time) error {
	w.mu.Lock()
	var err error
	if len(w.unbegun) > 0 {
		err, w.unbegun = w.unbegun[0], w.unbegun[1:]
	}
	w.mu.Unlock()
	if err != nil {
		return err
	}
	return w.begin(name, plan.Plan.On, plan.From, since)
}

func (w *world) begin(name string, on job.On, from, since time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.streams[on.Stream]
	if s == nil {
		return job.ErrNotFound
	}
	key := on.Stream + "/" + name
	if c := w.consumers[key]; c != nil {
		if c.From.Equal(from) {
			return nil
		}
		return jetstream.ErrConsumerExists
	}
	for _, c := range w.consumers {
		if s.workQueue && c.s == s && (c.On.Subject == on.Subject || c.On.Subject == "all") {
			return errors.New("filtered consumer not unique")
		}
	}
	if s.workQueue {
		since = time.Time{}
	}
	w.made++
	w.consumers[key] = &consumer{w: w, s: s, since: since, unacked: map[uint64]*delivery{}, OnConsumer: core.OnConsumer{
		Stream: on.Stream, Name: name, On: on, From: from, WorkQueue: s.workQueue, StreamCreated: s.created, Created: time.Now().Add(w.made),
	}}
	return nil
}

func (w *world) AdoptOn(_ context.Context, c core.OnConsumer, plan plans.PastPlan) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if found := w.consumers[c.Stream+"/"+c.Name]; found != nil && found.From.IsZero() {
		found.From, found.SequenceOnlyUntil = plan.From, time.Now().Add(time.Minute)
	}
	return nil
}

func (w *world) RemoveOn(_ context.Context, of core.OnConsumer) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.unanswered > 0 {
		w.unanswered--
		return job.ErrUnknown
	}
	key := of.Stream + "/" + of.Name
	if c := w.consumers[key]; c != nil && c.Created.Equal(of.Created) {
		c.closed = true
		delete(w.consumers, key)
		w.removed = append(w.removed, c.On.String())
	}
	return nil
}

// feed names a consumer, as a client does.
type feed struct {
	w            *world
	stream, name string
}

func (f feed) State(context.Context) (core.OnState, error) {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	c := f.w.consumers[f.stream+"/"+f.name]
	if c == nil {
		return core.OnState{}, jetstream.ErrConsumerNotFound
	}
	// AckedSequence stays 0: a server does not move it for a consumer without an ack.
	state := core.OnState{Created: c.Created, Unacked: len(c.unacked), AckedDelivery: c.delivered}
	for _, d := range c.unacked {
		state.AckedDelivery = min(state.AckedDelivery, d.number-1)
	}
	for _, m := range c.s.messages {
		if m.sequence > c.passed && c.wants(m) {
			state.Pending++
		}
	}
	return state, nil
}

func (c *consumer) wants(m *message) bool {
	return (m.subject == c.On.Subject || c.On.Subject == "all") && !m.gone && !m.stored.Before(c.since)
}

func (f feed) Groups(ctx context.Context, n int, wait time.Duration, handle func([]jetstream.Msg) error) error {
	f.w.mu.Lock()
	c := f.w.consumers[f.stream+"/"+f.name]
	f.w.mu.Unlock()
	if c == nil {
		return jetstream.ErrConsumerNotFound
	}
	for end := time.Now().Add(wait); n > 0 && ctx.Err() == nil && time.Now().Before(end); {
		group, err := c.next(n)
		if err != nil {
			return err
		}
		if len(group) == 0 {
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
			continue
		}
		n -= len(group)
		if err := handle(group); err != nil {
			return err
		}
	}
	return nil
}

// next delivers up to n messages: those that are due again before new ones.
func (c *consumer) next(n int) (group []jetstream.Msg, err error) {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	if c.closed {
		return nil, jetstream.ErrConsumerDeleted
	}
	for _, sequence := range slices.Sorted(maps.Keys(c.unacked)) {
		if d := c.unacked[sequence]; len(group) < n && !d.due.After(time.Now()) {
			c.delivered++
			d.due = time.Now().Add(30 * time.Second)
			group = append(group, &delivered{c: c, m: c.s.messages[sequence-1], number: c.delivered})
		}
	}
	for _, m := range c.s.messages[c.passed:] {
		if len(group) == n {
			break
		}
		c.passed = m.sequence
		if c.wants(m) {
			c.delivered++
			c.unacked[m.sequence] = &delivery{c.delivered, time.Now().Add(30 * time.Second)}
			group = append(group, &delivered{c: c, m: m, number: c.delivered})
		}
	}
	return group, nil
}

// delivered is a message that was delivered.
type delivered struct {
	jetstream.Msg // for the methods that intake does not call

	c      *consumer
	m      *message
	number uint64
}

func (d *delivered) Data() []byte { return []byte("data") }

func (d *delivered) Headers() nats.Header {
	h := nats.Header{}
	if d.m.id != "" {
		h.Set(jetstream.MsgIDHeader, d.m.id)
	}
	return h
}

func (d *delivered) Metadata() (*jetstream.MsgMetadata, error) {
	return &jetstream.MsgMetadata{Timestamp: d.m.stored, Sequence: jetstream.SequencePair{Stream: d.m.sequence, Consumer: d.number}}, nil
}

func (d *delivered) Ack() error {
	d.c.w.mu.Lock()
	defer d.c.w.mu.Unlock()
	delete(d.c.unacked, d.m.sequence)
	d.m.gone = d.c.s.workQueue
	return nil
}

func (d *delivered) Nak() error { return d.NakWithDelay(0) }

func (d *delivered) NakWithDelay(delay time.Duration) error {
	d.c.w.mu.Lock()
	defer d.c.w.mu.Unlock()
	if u := d.c.unacked[d.m.sequence]; u != nil {
		u.due = time.Now().Add(delay)
	}
	return nil
}

// ran returns the tokens of the slots that were published.
func (w *world) ran() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var tokens []string
	for _, m := range w.slots {
		tokens = append(tokens, m.Slot.Token)
	}
	slices.Sort(tokens)
	return tokens
}

// wants waits until all messages are handled, and compares the runs.
func (w *world) wants(what string, tokens ...string) {
	w.t.Helper()
	time.Sleep(time.Minute)
	synctest.Wait()
	slices.Sort(tokens)
	if got := w.ran(); !slices.Equal(got, tokens) {
		w.t.Errorf("%s: runs %v, want %v", what, got, tokens)
	}
}

// has compares the consumers, as "STREAM subject".
func (w *world) has(what string, want ...string) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	var got []string
	for _, c := range w.consumers {
		got = append(got, c.On.Stream+" "+c.On.Subject)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		w.t.Errorf("%s: consumers %v, want %v", what, got, want)
	}
}

func on(stream, subject string) job.Job {
	return job.Job{Name: "charge", On: job.On{Stream: stream, Subject: subject}}
}

package wire

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"pgregory.net/rapid"

	"github.com/cronce-io/cronce/job"
)

// answer is how a scripted broker handles one question.
type answer struct {
	store    bool  // the write is stored if its revision is the last
	err      error // the error that the caller gets instead of the real answer; nil: the real answer
	entry    *Entry
	meantime func(*script) // other writes that happen first
}

// script is a broker that holds one key. It answers with the next scripted answer, and
// with the real one after the last.
type script struct {
	now        Entry
	last       uint64
	puts, gets []answer
	asked      int
}

func shift(lines *[]answer) answer {
	if len(*lines) == 0 {
		return answer{store: true}
	}
	line := (*lines)[0]
	*lines = (*lines)[1:]
	return line
}

func (s *script) set(value string) {
	s.last++
	s.now = Entry{Revision: s.last, Data: []byte(value)}
}

func (s *script) put(m *nats.Msg, revision uint64) (uint64, error) {
	s.asked++
	line := shift(&s.puts)
	if line.meantime != nil {
		line.meantime(s)
	}
	won, err := uint64(0), error(&jetstream.APIError{Code: 400, ErrorCode: 10071})
	if line.store && s.now.Revision == revision {
		s.last++
		s.now = Entry{Revision: s.last, Data: m.Data, Header: m.Header}
		won, err = s.last, nil
	}
	if line.err != nil {
		return 0, line.err
	}
	return won, err
}

func (s *script) get() (Entry, error) {
	s.asked++
	line := shift(&s.gets)
	switch {
	case line.err != nil:
		return Entry{}, line.err
	case line.entry != nil:
		return *line.entry, nil
	case s.now.Revision == 0:
		return Entry{}, ErrNothing
	}
	return s.now, nil
}

var (
	errTimeout  = context.DeadlineExceeded
	errInFlight = &jetstream.APIError{Code: 400, ErrorCode: 10164}
	errFull     = &jetstream.APIError{Code: 503, ErrorCode: 10077, Description: "maximum bytes exceeded"}
	errDisk     = &jetstream.APIError{Code: 503, ErrorCode: 10077, Description: "write block 1: no space left on device"}
)

// TestWrite covers what can happen between a writer and the broker.
func TestWrite(t *testing.T) {
	t.Parallel()
	other := func(s *script) { s.set("other") }
	stale := &Entry{Revision: 3, Data: []byte("before")}
	for name, test := range map[string]struct {
		revision uint64 // expected by the writer; the key's is 3
		script   script
		want     uint64
		err      error
		asked    int
	}{
		"costs one question when all is well":                     {3, script{}, 4, nil, 1},
		"its answer is lost":                                      {3, script{puts: []answer{{store: true, err: errTimeout}}}, 4, nil, 3},
		"it is lost":                                              {3, script{puts: []answer{{err: errTimeout}}}, 4, nil, 2},
		"no leader answers for a while":                           {3, script{puts: []answer{{err: nats.ErrNoResponders}, {err: jetstream.ErrNoStreamResponse}}}, 4, nil, 3},
		"another writer was first":                                {3, script{puts: []answer{{store: true, meantime: other}}}, 0, job.ErrConflict, 2},
		"it is lost, and then another writer writes":              {3, script{puts: []answer{{err: errTimeout}, {store: true, meantime: other}}}, 0, job.ErrConflict, 3},
		"it is stored unanswered, and then overwritten":           {3, script{puts: []answer{{store: true, err: errTimeout}, {store: true, meantime: other}}}, 0, job.ErrConflict, 3},
		"it collides with a write that fails (10164)":             {3, script{puts: []answer{{err: errInFlight}}}, 4, nil, 3},
		"it collides with one that is stored (10164)":             {3, script{puts: []answer{{err: errInFlight, meantime: other}}}, 0, job.ErrConflict, 2},
		"it collides with its own first copy (10164)":             {3, script{puts: []answer{{store: true, err: errTimeout}, {err: errInFlight}}}, 4, nil, 3},
		"the reading after a conflict is stale":                   {3, script{puts: []answer{{store: true, err: errTimeout}}, gets: []answer{{entry: stale}}}, 4, nil, 5},
		"the reading after a conflict is unanswered":              {3, script{puts: []answer{{store: true, err: errTimeout}}, gets: []answer{{err: errTimeout}}}, 4, nil, 4},
		"what it expected is removed":                             {3, script{puts: []answer{{store: true, meantime: func(s *script) { s.now = Entry{} }}}}, 0, job.ErrConflict, 2},
		"what it expected seems removed beside a write in flight": {3, script{puts: []answer{{err: errInFlight}}, gets: []answer{{err: ErrNothing}}}, 4, nil, 3},
		"the bucket is full":                                      {3, script{puts: []answer{{err: errFull}}}, 0, errFull, 1},
		"the bucket is full after an unanswered copy":             {3, script{puts: []answer{{store: true, err: errTimeout}, {err: errFull}}}, 0, job.ErrUnknown, 2},
		"a leader's disk fails for a moment":                      {3, script{puts: []answer{{err: errDisk}}}, 4, nil, 2},
		"the connection is closed for good":                       {3, script{puts: []answer{{err: nats.ErrConnectionClosed}}}, 0, nats.ErrConnectionClosed, 1},
		"it creates where there is nothing, after a collision":    {0, script{puts: []answer{{err: errInFlight, meantime: func(s *script) { s.now = Entry{} }}}}, 4, nil, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := test.script
				s.now, s.last = *stale, 3
				got, err := newFakeBroker(&s).bucket().Write(t.Context(), "k", []byte("mine"), test.revision)
				if got != test.want || !errors.Is(err, test.err) || (err == nil) != (test.err == nil) {
					t.Errorf("got revision %d, %v; want %d, %v", got, err, test.want, test.err)
				}
				if s.asked != test.asked {
					t.Errorf("asked the broker %d times, want %d", s.asked, test.asked)
				}
			})
		})
	}
}

// A replica that does not show the value yet does not prove that it was removed.
func TestAStaleDirectGetSettlesNoWrite(t *testing.T) {
	t.Parallel()
	b := newFakeBroker(silent{}).bucket()
	b.ReadDirectly(b.Stream)
	w := b.Writing(t.Context(), "k", 3, nil)
	cause := &jetstream.APIError{Code: 400, ErrorCode: jetstream.JSErrCodeStreamWrongLastSequence}
	for name, test := range map[string]struct {
		stored  Entry
		err     error
		settled bool
	}{
		"no value":                      {Entry{}, ErrNothing, false},
		"the value before":              {Entry{Revision: 3}, nil, false},
		"another's value that is newer": {Entry{Revision: 4, Data: []byte("other")}, nil, true},
	} {
		if won, settled := w.verdict(test.stored, test.err, cause); won != 0 || settled != test.settled {
			t.Errorf("%s: revision %d, settled %v; want 0, %v", name, won, settled, test.settled)
		}
	}
}

// The error names the operation that was not answered, and how long the write waited.
func TestWriteNamesWhatItWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, err := newFakeBroker(silent{}).bucket().Write(ctx, "report.20261121T070000Z", nil, 7)
		want := regexp.MustCompile(`^write b/report.20261121T070000Z at revision 7: not answered: it may have happened \(after 3(.0[0-9]+)?s\): context deadline exceeded$`)
		if !errors.Is(err, job.ErrUnknown) || !want.MatchString(err.Error()) {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	})
}

// silent is a broker that never answers.
type silent struct{}

func (silent) put(*nats.Msg, uint64) (uint64, error) { return 0, errTimeout }
func (silent) get() (Entry, error)                   { return Entry{}, errTimeout }

// chaos is a broker behind a network that loses requests and answers, delivers copies
// late, reports conflicts with writes that are never stored, and returns stale reads. It
// stores only writes that expect the last revision.
type chaos struct {
	mu      sync.Mutex
	random  *rand.Rand
	history []Entry
	delayed []func()
}

func (c *chaos) now() Entry {
	if len(c.history) == 0 {
		return Entry{}
	}
	return c.history[len(c.history)-1]
}

func (c *chaos) store(m *nats.Msg, revision uint64) (uint64, error) {
	if c.now().Revision != revision {
		return 0, &jetstream.APIError{ErrorCode: 10071}
	}
	c.history = append(c.history, Entry{Revision: uint64(len(c.history) + 1), Data: m.Data})
	return c.now().Revision, nil
}

func (c *chaos) put(m *nats.Msg, revision uint64) (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.land(2)
	switch c.random.IntN(6) {
	case 0:
		return 0, errTimeout
	case 1:
		_, _ = c.store(m, revision)
		return 0, errTimeout
	case 2:
		c.delayed = append(c.delayed, func() { _, _ = c.store(m, revision) })
		return 0, errTimeout
	case 3:
		return 0, errInFlight
	}
	return c.store(m, revision)
}

func (c *chaos) get() (Entry, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.land(2)
	back := 1
	switch c.random.IntN(4) {
	case 0:
		return Entry{}, errTimeout
	case 1:
		back = 2
	}
	if len(c.history) < back {
		return Entry{}, ErrNothing
	}
	return c.history[len(c.history)-back], nil
}

// land delivers a random number of delayed copies, each with a chance of one in odds.
func (c *chaos) land(odds int) {
	for len(c.delayed) > 0 && c.random.IntN(odds) == 0 {
		first := c.delayed[0]
		c.delayed = c.delayed[1:]
		first()
	}
}

// find returns the index of the value in the history, or -1.
func (c *chaos) find(value string) int {
	return slices.IndexFunc(c.history, func(e Entry) bool { return string(e.Data) == value })
}

// Concurrent writers race through chaos. A successful write is in the history at its
// returned revision. No value is in the history twice. A write that reports a conflict is
// never stored later. If it was stored before, it has been overwritten.
func TestWriteIsCertain(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		seed := rapid.Uint64().Draw(r, "seed")
		writers := rapid.IntRange(1, 4).Draw(r, "writers")
		synctest.Test(t, func(*testing.T) {
			c := &chaos{random: rand.New(rand.NewPCG(seed, 1))}
			broker := newFakeBroker(c)
			broker.late = func() time.Duration { return time.Duration(rand.IntN(5000)) * time.Millisecond }
			var all sync.WaitGroup
			refused := make(chan string, 100)
			for w := range writers {
				all.Go(func() {
					for n := range 10 {
						if err := c.attempt(broker, fmt.Sprintf("%d-%d", w, n), refused); err != nil {
							r.Error(err)
						}
					}
				})
			}
			all.Wait()
			close(refused)
			c.land(1)
			for value := range refused {
				if c.find(value) >= 0 {
					r.Errorf("%s: called a conflict, and was stored later", value)
				}
			}
			seen := map[string]bool{}
			for _, e := range c.history {
				if seen[string(e.Data)] {
					r.Errorf("%s stands in the history twice", e.Data)
				}
				seen[string(e.Data)] = true
			}
		})
	})
}

// attempt writes value over the last revision, and checks the result.
func (c *chaos) attempt(broker *fakeBroker, value string, refused chan<- string) error {
	c.mu.Lock()
	expected := c.now().Revision
	c.mu.Unlock()
	won, err := broker.bucket().Write(context.Background(), "k", []byte(value), expected)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch at := c.find(value); {
	case err == nil && (at < 0 || c.history[at].Revision != won):
		return fmt.Errorf("%s: won %d, which is not in the history", value, won)
	case err != nil && !errors.Is(err, job.ErrConflict):
		return err
	case err != nil && at >= 0 && at == len(c.history)-1:
		return fmt.Errorf("%s: reported as a conflict, and stored", value)
	case err != nil && at < 0:
		refused <- value
	}
	return nil
}

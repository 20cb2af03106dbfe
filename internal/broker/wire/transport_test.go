package wire

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/job"
)

// keys is a fake broker that stores the revisions of any number of keys.
type keys struct{ all map[string]uint64 }

func (k *keys) put(m *nats.Msg, revision uint64) (uint64, error) {
	if k.all[m.Subject] != revision {
		return 0, &jetstream.APIError{Code: 400, ErrorCode: 10071}
	}
	k.all[m.Subject] = revision + 1
	return revision + 1, nil
}

func (k *keys) get() (Entry, error) { return Entry{}, ErrNothing }

// Invariant 9: slowness is not death. The answer to a write's first copy settles it, even
// if further copies were sent meanwhile. Once the transport has measured slow answers, it
// sends no further copies.
func TestSlownessIsNotDeathForWrites(t *testing.T) {
	t.Parallel()
	for _, late := range []time.Duration{1200 * time.Millisecond, 1500 * time.Millisecond, 5 * time.Second, 20 * time.Second / 3} {
		t.Run(fmt.Sprint(late), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newFakeBroker(&keys{map[string]uint64{}})
				b.late = func() time.Duration { return late }
				const writes, rounds = 50, 4
				for round := range rounds {
					began, before := time.Now(), b.count("$KV")
					var all sync.WaitGroup
					for i := range writes {
						all.Go(func() {
							revision, err := b.bucket().Write(t.Context(), fmt.Sprint(i), []byte{byte(round)}, uint64(round))
							if err != nil || revision != uint64(round)+1 {
								t.Errorf("round %d: revision %d, %v", round, revision, err)
							}
						})
					}
					all.Wait()
					if took := time.Since(began); took != late {
						t.Errorf("round %d took %v, want %v", round, took, late)
					}
					most := writes
					if round == 0 {
						most = 3 * writes // after 1 s and 3 s: no answer was measured yet
					}
					if sent := b.count("$KV") - before; sent > most {
						t.Errorf("round %d: %d copies of %d writes were sent, want at most %d", round, sent, writes, most)
					}
					synctest.Wait()
				}
				time.Sleep(2 * late) // let the answers to the other copies arrive; they are ignored
			})
		})
	}
}

// Invariant 9: more load never makes the system send more. If the broker answers a burst in
// less than half a minute, each question is sent once, because the answers show progress.
func TestABurstThatTakesLongIsSentOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newFakeBroker(&keys{map[string]uint64{}})
		var last time.Time
		b.late = func() time.Duration { // sequentially
			if now := time.Now(); last.Before(now) {
				last = now
			}
			last = last.Add(9 * time.Millisecond) // 27 s for all, less than 2*mostSlow
			return time.Until(last)
		}
		const writes = 2000
		var all sync.WaitGroup
		for i := range writes {
			all.Go(func() {
				if _, err := b.bucket().Write(t.Context(), fmt.Sprint(i), nil, 0); err != nil {
					t.Error(err)
				}
			})
			if i%2 == 0 {
				all.Go(func() {
					if err := <-sentSlot(b, job.NewSlot(fmt.Sprint("j", i), time.Unix(1_800_000_000, 0))); err != nil {
						t.Error(err)
					}
				})
			}
		}
		all.Wait()
		if n := b.count(""); n != writes*3/2 {
			t.Errorf("%d messages were sent, want %d", n, writes*3/2)
		}
	})
}

// Copies of an unanswered write are sent after 1, 2, 4 seconds and so on, until its context
// ends. All of them have the same reply subject.
func TestCopiesOfAnUnansweredWriteGoOutEverMoreSeldom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newFakeBroker(silent{})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		ended := make(chan error, 1)
		go func() {
			_, err := b.bucket().Write(ctx, "k", nil, 0)
			ended <- err
		}()
		for seconds, want := range map[int]int{0: 1, 1: 2, 3: 3, 7: 4, 15: 5} {
			time.AfterFunc(time.Duration(seconds)*time.Second+200*time.Millisecond, func() {
				if got := b.count("$KV"); got != want {
					t.Errorf("after %d s %d copies were sent, want %d", seconds, got, want)
				}
			})
		}
		if err := <-ended; !errors.Is(err, job.ErrUnknown) {
			t.Errorf("ended with %v, want that it is unknown", err)
		}
		time.Sleep(time.Minute)
		if got := b.count("$KV"); got != 5 {
			t.Errorf("%d copies were sent, want none after the context ended", got)
		}
	})
}

// A question asked while the broker is away is sent after the reconnect, if still wanted.
func TestWhatIsAskedWhileTheBrokerIsAwayIsSentWhenItIsBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newFakeBroker(&keys{map[string]uint64{}})
		b.transport.link.Connected.Store(false)
		abandoned, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := b.bucket().Write(abandoned, "abandoned", nil, 0); !errors.Is(err, job.ErrUnknown) {
			t.Errorf("ended with %v, want that it is unknown", err)
		}
		time.AfterFunc(time.Minute, func() {
			b.transport.link.Losses.Add(1)
			b.transport.link.Connected.Store(true)
		})
		began := time.Now()
		if _, err := b.bucket().Write(t.Context(), "wanted", nil, 0); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > time.Minute+time.Second {
			t.Errorf("it was answered after %v", took)
		}
		if n := b.count("abandoned"); n > 0 {
			t.Errorf("a write whose context had ended was sent")
		}
	})
}

// All of many concurrent questions are answered, and none is left open.
func TestEveryQuestionEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newFakeBroker(&keys{map[string]uint64{}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		n := 0
		b.late = func() time.Duration { // answers arrive out of order
			n++
			return time.Duration(n*7919%5000) * time.Millisecond
		}
		var asking sync.WaitGroup
		for i := range 1000 {
			asking.Go(func() {
				if _, err := b.bucket().Write(ctx, fmt.Sprint(i), nil, 0); err != nil {
					t.Error(err)
				}
			})
		}
		asking.Wait()
		time.Sleep(10 * time.Second) // some writes were reading the key when their answer arrived
		b.transport.mu.Lock()
		defer b.transport.mu.Unlock()
		if n := len(b.transport.unanswered); n > 0 {
			t.Errorf("%d questions are left open", n)
		}
	})
}

// sentSlot publishes a slot and returns a channel with the result.
func sentSlot(b *fakeBroker, s job.Slot) <-chan error {
	p := &publishing{slot: s, result: make(chan error, 1)}
	p.Asker, p.Once, p.FailDenied = p, true, true
	b.transport.Ask(&p.Question)
	return p.result
}

// publishing is a question that is sent at most once, like the publication of a slot.
type publishing struct {
	Question
	slot   job.Slot
	result chan error
}

func (p *publishing) Subject() string { return "n.slot.default." + p.slot.Job }

func (p *publishing) Compose(m *nats.Msg) { m.Subject = p.Subject() }

func (p *publishing) Answer(m *nats.Msg, err error) {
	if err == nil {
		_, err = PubAck(m)
	}
	if err != nil && Classify(err) == Unanswered {
		err = fmt.Errorf("%w: %w", job.ErrUnknown, err)
	}
	p.result <- err
}

// If the process is suspended between Send and the connection, it does not send the slot.
// Other producers may have published the slot, and the duplicate window may have passed.
func TestWhatWaitedWhileTheProcessSleptIsNotSent(t *testing.T) {
	t.Parallel()
	for slept, want := range map[time.Duration]bool{0: true, publishTimeout / 2: true, publishTimeout + time.Second: false} {
		synctest.Test(t, func(t *testing.T) {
			b := newFakeBroker(&keys{map[string]uint64{}})
			b.transport.mu.Lock()
			b.transport.writing = true // prevents the writer from starting before the clock is changed
			b.transport.mu.Unlock()
			result := sentSlot(b, job.NewSlot("report", time.Unix(1_800_000_000, 0)))
			b.transport.mu.Lock()
			for _, q := range b.transport.unanswered {
				q.wall -= int64(slept)
			}
			b.transport.mu.Unlock()
			b.transport.write()
			if err := <-result; (err == nil) != want || err != nil && !errors.Is(err, job.ErrUnknown) {
				t.Errorf("after %v: %v, want it sent: %v, else unknown", slept, err, want)
			}
			if sent := b.count(".slot.") > 0; sent != want {
				t.Errorf("after %v: sent %v, want %v", slept, sent, want)
			}
		})
	}
}

// A publication times out soon if the broker was quick. If the broker is slow, it waits
// longer, because repeated publications would slow the broker further.
func TestPublicationsAtASlowBrokerAreWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newFakeBroker(&keys{map[string]uint64{}})
		b.late = func() time.Duration { return 6 * time.Second }
		slot := func(i int) job.Slot { return job.NewSlot(fmt.Sprint("j", i), time.Unix(1_800_000_000, 0)) }
		if err := <-sentSlot(b, slot(0)); !errors.Is(err, job.ErrUnknown) {
			t.Errorf("the first one: %v, want that it is unknown", err)
		}
		for i := 1; i < 5; i++ {
			before := b.count(".slot.")
			if err := <-sentSlot(b, slot(i)); err != nil {
				t.Errorf("slot %d: %v", i, err)
			}
			if sent := b.count(".slot.") - before; sent != 1 {
				t.Errorf("slot %d was sent %d times", i, sent)
			}
		}
	})
}

package wire

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/job"
)

// disk is a broker's memory that stores one write after another.
type disk struct {
	values

	deaf  string // the key whose writes get no answer
	takes time.Duration
	wire  time.Duration // until an answer arrives
	free  time.Time
}

func (d *disk) put(m *nats.Msg, revision uint64) (uint64, error) {
	if d.deaf != "" && strings.HasSuffix(m.Subject, "."+d.deaf) {
		return 0, errTimeout
	}
	return d.values.put(m, revision)
}

func (d *disk) late() time.Duration {
	if now := time.Now(); d.free.Before(now) {
		d.free = now
	}
	d.free = d.free.Add(d.takes)
	return time.Until(d.free) + d.wire
}

// grouped returns a bucket of a fake broker with a group. Batches are denied.
func grouped(b *fakeBroker) (Bucket, *Group) {
	of := b.bucket()
	g := NewGroup(of.Wire)
	g.paused = time.Now().Add(24 * time.Hour)
	of.Group = g
	return of, g
}

// send writes n keys from first on, and returns a function that waits for the answers.
func send(t *testing.T, b Bucket, first, n int) (wait func()) {
	t.Helper()
	var answers sync.WaitGroup
	answers.Add(n)
	for i := range n {
		b.Writing(t.Context(), "key"+strconv.Itoa(first+i), 0, func(_ uint64, err error) {
			if err != nil {
				t.Error(err)
			}
			answers.Done()
		}).SendValue([]byte("x"), "nonce", nil)
	}
	return answers.Wait
}

func TestAGroupMeasuresTheStorage(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		takes  time.Duration
		wire   time.Duration
		writes int // at once
		slow   bool
		known  bool
	}{
		"synced":                          {time.Millisecond, 0, 300, true, true},
		"not synced":                      {20 * time.Microsecond, 0, 300, false, true},
		"few writes tell nothing":         {time.Millisecond, 0, window, false, false},
		"just slow":                       {SlowStorage, 0, 300, true, true},
		"slow on a good disk":             {3 * SlowStorage / 2, 0, 300, true, true},
		"in doubt after one round":        {3 * SlowStorage / 2, 0, window + 1, false, false},
		"beyond doubt after one round":    {beyondDoubt, 0, window + 1, true, true},
		"a fast one behind a long wire":   {20 * time.Microsecond, 50 * time.Millisecond, 300, false, true},
		"a synced one behind a long wire": {time.Millisecond, 50 * time.Millisecond, 300, true, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := &disk{values: values{map[string]Entry{}}, takes: tc.takes, wire: tc.wire}
			b := newFakeBroker(d)
			b.late = d.late
			of, g := grouped(b)
			alone := of
			alone.Group = nil // as a heartbeat
			send(t, alone, 1000, 1)()
			send(t, of, 0, tc.writes)()
			synctest.Wait()
			if m := &g.Transport.storage; m.slow() != tc.slow || (m.known() > 0) != tc.known {
				t.Errorf("%s: pace %v, slow %t", name, m.known(), m.slow())
			}
		})
	}
}

func TestARoundThatIsSentAtOnceIsMeasured(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &disk{values: values{map[string]Entry{}}, takes: time.Millisecond}
		b := newFakeBroker(d)
		b.late = d.late
		of, g := grouped(b)
		send(t, of, 0, window+1)()
		synctest.Wait()
		time.Sleep(probeEvery)
		send(t, of, window+1, slowWindow+window)() // nothing waits at the end of the second measured round
		synctest.Wait()
		if got, want := g.Transport.storage.interval, 2*probeEvery; got != want {
			t.Errorf("after two measured rounds, the next probe is due after %v, want %v", got, want)
		}
	})
}

func TestWritesOnFastStorageGoSingly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &disk{values: values{map[string]Entry{}}, takes: 20 * time.Microsecond}
		b := newFakeBroker(d)
		b.late = d.late
		of, g := grouped(b)
		g.paused = time.Time{}
		send(t, of, 0, 1000)()
		if n := b.count("$KV"); n != 1000 {
			t.Errorf("%d messages were sent for 1000 writes", n)
		}
	})
}

func TestFastStorageTakesAllThatWaitedWhileItWasMeasuredAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &disk{values: values{map[string]Entry{}}, takes: 20 * time.Microsecond}
		b := newFakeBroker(d)
		instants := map[time.Time]int{}
		b.late = func() time.Duration {
			instants[time.Now()]++
			return d.late()
		}
		of, g := grouped(b)
		g.paused = time.Time{}
		send(t, of, 0, 1000)()
		if len(instants) != 2 {
			t.Errorf("1000 writes were sent at %d instants, want 2", len(instants))
		}
	})
}

func TestOneLongRoundDoesNotMakeStorageSlowForLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &disk{values: values{map[string]Entry{}}, takes: 20 * time.Microsecond}
		b := newFakeBroker(d)
		n := 0
		b.late = func() time.Duration {
			if n++; n == 10 {
				d.free = time.Now().Add(100 * time.Millisecond) // the machine is busy
			}
			return d.late()
		}
		of, g := grouped(b)
		send(t, of, 0, window+1)()
		synctest.Wait()
		if !g.Transport.storage.slow() {
			t.Fatalf("pace %v: the first round was not long", g.Transport.storage.known())
		}
		time.Sleep(probeEvery)
		send(t, of, window+1, slowWindow+window)()
		synctest.Wait()
		if g.Transport.storage.slow() {
			t.Errorf("pace %v", g.Transport.storage.known())
		}
	})
}

func TestADoubtfulRoundIsFollowedByAWideOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &disk{values: values{map[string]Entry{}}, takes: 20 * time.Microsecond}
		b := newFakeBroker(d)
		n := 0
		instants := map[time.Time]int{}
		b.late = func() time.Duration {
			if n++; n == 10 {
				d.free = time.Now().Add(5 * time.Millisecond) // the machine is busy
			}
			instants[time.Now()]++
			return d.late()
		}
		of, g := grouped(b)
		g.paused = time.Time{}
		began := time.Now()
		send(t, of, 0, 1000)()
		delete(instants, began)
		if sent := slices.Sorted(maps.Values(instants)); !slices.Equal(sent, []int{wideWindow, 1000 - window - wideWindow}) {
			t.Errorf("after the first round, %v writes were sent at once, want %d, and then all others", sent, wideWindow)
		}
	})
}

func TestGroupsOfAConnectionShareWhatOneHasMeasured(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &disk{values: values{map[string]Entry{}}, takes: 20 * time.Microsecond}
		b := newFakeBroker(d)
		instants := map[time.Time]bool{}
		b.late = func() time.Duration {
			instants[time.Now()] = true
			return d.late()
		}
		of, _ := grouped(b)
		send(t, of, 0, 1000)()
		synctest.Wait()
		of.Group = NewGroup(of.Wire)
		clear(instants)
		send(t, of, 1000, 1000)()
		if len(instants) != 1 {
			t.Errorf("the second group sent 1000 writes at %d instants, want 1", len(instants))
		}
	})
}

func TestAPauseOfABusyMachineDiscardsTheMeasurementsOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &storage{distance: &distance{}}
		s.measure(time.Millisecond, maxBatch)
		const pause = 100 * time.Millisecond
		time.Sleep(pause)
		discarded := 0
		for range maxBatch { // sent before the pause, answered after it
			s.strained(window, pause)
			if s.known() == 0 {
				discarded++
				s.measure(time.Millisecond, maxBatch)
			}
		}
		if discarded != 1 {
			t.Errorf("the measurements were discarded %d times, want once", discarded)
		}
	})
}

func TestAGroupNoticesThatFastStorageHasBecomeSlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &disk{values: values{map[string]Entry{}}, takes: 20 * time.Microsecond}
		b := newFakeBroker(d)
		b.late = d.late
		of, g := grouped(b)
		send(t, of, 0, 300)()
		synctest.Wait()
		d.takes = time.Millisecond
		for i := range 4 {
			send(t, of, 300*(i+1), 300)()
		}
		synctest.Wait()
		if !g.Transport.storage.slow() {
			t.Errorf("pace %v", g.Transport.storage.known())
		}
	})
}

func TestADistantBrokerOnFastStorageIsMeasuredOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &disk{values: values{map[string]Entry{}}, takes: 10 * time.Microsecond, wire: 100 * time.Millisecond}
		b := newFakeBroker(d)
		b.late = d.late
		of, g := grouped(b)
		alone := of
		alone.Group = nil
		send(t, alone, 100_000, 1)()
		for i := range 20 {
			send(t, of, 300*i, 300)()
		}
		synctest.Wait()
		if g.window() <= wideWindow {
			t.Errorf("window %d: the distance counted as slowness", g.window())
		}
		if strain := g.Transport.storage.strain; strain >= SlowStorage {
			t.Errorf("one more write seems to take %v, of which the storage takes %v", strain, d.takes)
		}
	})
}

// A process that was busy when it began takes the broker for a distant one, and slow storage for fast.
func TestAMisjudgedDistanceIsNotedSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &disk{values: values{map[string]Entry{}}, takes: 3 * SlowStorage / 2, wire: 50 * time.Millisecond}
		b := newFakeBroker(d)
		b.late = d.late
		of, g := grouped(b)
		alone := of
		alone.Group = nil
		send(t, alone, 100_000, 1)()
		d.wire = 0
		send(t, of, 0, 300)()
		synctest.Wait()
		if g.Transport.storage.slow() || !g.Transport.storage.distant {
			t.Fatalf("pace %v: the distance of 50 ms does not count", g.Transport.storage.known())
		}
		time.Sleep(2 * probeEvery) // two rounds were measured
		send(t, alone, 100_001, 1)()
		send(t, of, 1000, 300)()
		synctest.Wait()
		if !g.Transport.storage.slow() {
			t.Errorf("pace %v after %v, want the %v of the storage", g.Transport.storage.known(), 2*probeEvery, d.takes)
		}
	})
}

func TestDistanceFollowsTheRoute(t *testing.T) {
	t.Parallel()
	var d distance
	for _, step := range []struct{ at, took, want time.Duration }{
		{time.Second, 5 * time.Millisecond, 5 * time.Millisecond},
		{2 * time.Second, time.Millisecond, time.Millisecond},
		{3 * time.Second, 9 * time.Millisecond, time.Millisecond},
		{70 * time.Second, 9 * time.Millisecond, time.Millisecond}, // the minute before still counts
		{140 * time.Second, 8 * time.Millisecond, 8 * time.Millisecond},
		{150 * time.Second, 10 * time.Millisecond, 8 * time.Millisecond},
	} {
		if d.add(step.at, step.took); d.least() != step.want {
			t.Errorf("at %v: %v, want %v", step.at, d.least(), step.want)
		}
	}
}

func TestAWriteWithoutAnAnswerDelaysOthersForASecondAtMost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &disk{values: values{map[string]Entry{}}, takes: time.Millisecond, deaf: "deaf"}
		b := newFakeBroker(d)
		b.late = d.late
		of, _ := grouped(b)
		ctx, cancel := context.WithCancel(t.Context())
		var deaf sync.WaitGroup
		deaf.Add(1)
		of.Writing(ctx, "deaf", 0, func(uint64, error) { deaf.Done() }).SendValue([]byte("x"), "nonce", nil)
		began := time.Now()
		send(t, of, 0, 300)()
		if took := time.Since(began); took > maxRound+500*time.Millisecond {
			t.Errorf("the others took %v", took)
		}
		cancel()
		deaf.Wait()
	})
}

func TestAWriteThatWaitsEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &disk{values: values{map[string]Entry{}}, takes: time.Millisecond}
		b := newFakeBroker(d)
		b.late = func() time.Duration { return d.late() + 500*time.Millisecond }
		of, g := grouped(b)
		wait := send(t, of, 0, 300)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		began := time.Now()
		_, err := Await(func(done func(uint64, error)) { of.Writing(ctx, "other", 0, done).SendValue([]byte("x"), "nonce", nil) })
		if took := time.Since(began); !errors.Is(err, job.ErrUnknown) || took != 10*time.Millisecond {
			t.Errorf("it ended after %v: %v", took, err)
		}
		wait()
		synctest.Wait()
		if len(g.watched) != 0 || g.round != nil {
			t.Errorf("an idle group watches %d contexts", len(g.watched))
		}
	})
}

// A server that does not know batches stores each message by itself. The group notices that, and
// sends no batch for a while.
func TestAGroupSendsNoBatchesForAWhileAfterARefusal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &disk{values: values{map[string]Entry{}}, takes: time.Millisecond}
		b := newFakeBroker(d)
		b.late = d.late
		of, g := grouped(b)
		g.paused = time.Time{}
		g.Transport.distance.add(0, time.Millisecond) // as of a heartbeat
		send(t, of, 0, 300)()
		first := b.count("$KV.b.")
		if first == 300 {
			t.Error("no write went in a batch")
		}
		send(t, of, 300, 300)()
		if n := b.count("$KV.b.") - first; n != 300 {
			t.Errorf("after the refusal, %d messages were sent for 300 writes", n)
		}
	})
}

// writeAnyway writes n keys, and waits for the answers, whatever they are.
func writeAnyway(t *testing.T, of Bucket, n int) {
	t.Helper()
	var answers sync.WaitGroup
	answers.Add(n)
	for i := range n {
		of.Writing(t.Context(), "key"+strconv.Itoa(i), 0, func(uint64, error) { answers.Done() }).SendValue([]byte("x"), "nonce", nil)
	}
	answers.Wait()
}

// If the time of a batch counted as the distance to the broker, slow storage would seem to be fast.
func TestTheTimeOfABatchIsNoDistance(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &disk{takes: time.Millisecond}
		b := newFakeBroker(refusing{errInFlight})
		b.late = d.late
		of, g := grouped(b)
		g.paused = time.Time{}
		writeAnyway(t, of, 300)
		if least := g.Transport.distance.least(); b.count("$KV.b.") <= 300 || least > 0 {
			t.Errorf("%d messages were sent for 300 writes, and the distance is %v", b.count("$KV.b."), least)
		}
	})
}

func TestAKnownMessageIDStopsNoBatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &disk{takes: time.Millisecond}
		b := newFakeBroker(refusing{&jetstream.APIError{Code: 400, ErrorCode: codeBatchDuplicate}})
		b.late = d.late
		of, g := grouped(b)
		g.paused = time.Time{}
		g.Transport.distance.add(0, time.Millisecond) // as of a heartbeat
		writeAnyway(t, of, 300)
		first := b.count("$KV.b.")
		writeAnyway(t, of, 300)
		if n := b.count("$KV.b.") - first; first <= 300 || n <= 300 {
			t.Errorf("%d and then %d messages were sent for 300 writes each, want some in batches both times", first, n)
		}
	})
}

// post is a publication: it is sent once.
type post struct {
	Question
	result chan error
}

func newPost() *post {
	p := &post{result: make(chan error, 1)}
	p.Asker, p.Once = p, true
	return p
}

func (*post) Subject() string                 { return "$KV.b.post" }
func (*post) Compose(m *nats.Msg)             { m.Subject, m.Header = "$KV.b.post", nats.Header{} }
func (p *post) Answer(_ *nats.Msg, err error) { p.result <- err; p.Leave() }
func (*post) Size() int                       { return 0 }
func (p *post) Stored(uint64)                 { p.result <- nil }
func (p *post) Unstored(err error, _ bool)    { p.result <- err }

func TestABatchThatWasStoredMakesRoomForTheNext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, g := grouped(newFakeBroker(&values{map[string]Entry{}}))
		g.paused = time.Time{}
		g.Transport.storage.measure(maxBatch*beyondDoubt, maxBatch)
		round := g.begin()
		round.unanswered = slowWindow
		for range (maxBatches + 1) * maxBatch {
			g.Send(newPost())
		}
		round.unanswered = 0
		_, batches := g.next()
		open, wait := g.round.unanswered, len(g.waiting)
		if len(batches) != maxBatches || wait < maxBatch {
			t.Fatalf("%d batches were sent, and %d messages wait", len(batches), wait)
		}
		stored := func(b *batch) {
			n := len(b.all)
			ack := fmt.Sprintf(`{"stream":"KV_b","seq":%d,"batch":%q,"count":%d}`, n, b.id, n)
			b.Answer(&nats.Msg{Data: []byte(ack)}, nil)
			open -= n
		}
		stored(batches[0])
		next := wait - len(g.waiting)
		if next < minBatch || g.round.unanswered != open+next {
			t.Errorf("after a batch was stored, %d messages went on, and %d are open", next, g.round.unanswered)
		}
		wait = len(g.waiting)
		stored(batches[1]) // fewer than a whole batch wait for others
		if wait >= maxBatch || len(g.waiting) != wait {
			t.Errorf("then %d messages wait, and %d waited before", len(g.waiting), wait)
		}
		for range 3 * maxBatch { // one whole batch has room
			g.Send(newPost())
		}
		if n := g.round.unanswered; n > maxBatches*maxBatch || len(g.waiting) != wait+2*maxBatch {
			t.Errorf("%d messages are open, and %d wait", n, len(g.waiting))
		}
	})
}

func TestAPublicationThatWaitedThroughASuspensionIsNotSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &disk{values: values{map[string]Entry{}}, takes: time.Millisecond}
		b := newFakeBroker(d)
		b.late = d.late
		of, g := grouped(b)
		wait := send(t, of, 0, window) // they are open, so the publication waits
		p := newPost()
		g.Send(p)
		g.mu.Lock()
		p.wall -= int64(time.Minute) // a suspension, as the wall clock shows it
		g.mu.Unlock()
		if err := <-p.result; !errors.Is(err, nats.ErrTimeout) {
			t.Errorf("the publication ended with %v", err)
		}
		wait()
		if n := b.count("$KV.b.post"); n != 0 {
			t.Errorf("the publication was sent")
		}
	})
}

func TestARoundIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const size, n = 300 << 10, 100
		b := newFakeBroker(&values{map[string]Entry{}})
		b.late = func() time.Duration { return 50 * time.Millisecond }
		of, _ := grouped(b)
		open := func() int {
			synctest.Wait()
			b.mu.Lock()
			defer b.mu.Unlock()
			return len(b.sent)
		}
		large := []byte(strings.Repeat("x", size))
		var answers sync.WaitGroup
		answers.Add(n)
		for i := range n {
			of.Writing(t.Context(), "key"+strconv.Itoa(i), 0, func(_ uint64, err error) {
				if err != nil {
					t.Error(err)
				}
				answers.Done()
			}).SendValue(large, "nonce", nil)
		}
		for before := 0; before < n; time.Sleep(50 * time.Millisecond) {
			sent := open()
			if round := sent - before; round < 1 || round*size > maxRoundBytes {
				t.Fatalf("%d writes of %d bytes are open at once, want at least one and at most %d bytes", round, size, maxRoundBytes)
			}
			before = sent
		}
		answers.Wait()
	})
}

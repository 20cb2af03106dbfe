package wire_test

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

type published struct {
	duplicate bool
	err       error
}

// slot returns the message of slot i.
func slot(i int) core.Message {
	at := time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC).Add(time.Duration(i) * time.Second)
	return core.Message{Slot: job.NewSlot("report", at), JobRevision: 7, Node: "n1", Due: at}
}

// publishAll publishes the slots, all at once, and returns the results.
func publishAll(t *testing.T, s *kv.Store, slots []int) []published {
	t.Helper()
	return publishTo(t, s, slots, inDefault)
}

// publishTo publishes each slot to a queue of its own choice.
func publishTo(t *testing.T, s *kv.Store, slots []int, queue func(i int) string) []published {
	t.Helper()
	results := make([]published, len(slots))
	answered := make([]atomic.Int32, len(slots))
	var answers sync.WaitGroup
	answers.Add(len(slots))
	for i, n := range slots {
		err := s.Slots().Send(queue(n), slot(n), []byte(`{"n":1}`), func(duplicate bool, err error) {
			if answered[i].Add(1) > 1 {
				t.Errorf("slot %d is answered twice", n)
			}
			results[i] = published{duplicate, err}
			answers.Done()
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	answers.Wait()
	return results
}

// publishUntilAnswered publishes each slot to its queue, and again those whose publication is
// unknown, as a producer does: on a busy machine an answer may be late.
func publishUntilAnswered(t *testing.T, s *kv.Store, slots []int, queue func(i int) string) map[int]error {
	t.Helper()
	answers := map[int]error{}
	natstest.Eventually(t, "all publications to be answered", func() bool {
		var unknown []int
		for i, r := range publishTo(t, s, slots, queue) {
			if errors.Is(r.err, job.ErrUnknown) && !errors.Is(r.err, job.ErrDenied) {
				unknown = append(unknown, slots[i])
				continue
			}
			answers[slots[i]] = r.err
		}
		slots = unknown
		return len(slots) == 0
	})
	return answers
}

func publishUntilStored(t *testing.T, s *kv.Store, slots []int) {
	t.Helper()
	for n, err := range publishUntilAnswered(t, s, slots, inDefault) {
		if err != nil {
			t.Fatalf("slot %d: %v", n, err)
		}
	}
}

func inDefault(int) string { return "default" }

func upTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// wantWhole checks that the stream holds so many slots, each once, and no part of a batch without
// the rest of it. It returns how many came in batches.
func wantWhole(t *testing.T, js jetstream.JetStream, n int) (inBatches int) {
	t.Helper()
	slots := map[string]bool{}
	batches, ended := map[string]int{}, map[string]bool{}
	slotStream, err := js.Stream(t.Context(), "cronce_slots")
	if err != nil {
		t.Fatal(err)
	}
	for seq := range slotStream.CachedInfo().State.LastSeq {
		m, err := slotStream.GetMsg(t.Context(), seq+1)
		if err != nil {
			t.Fatal(err)
		}
		slots[m.Header.Get("Cronce-Slot")] = true
		if id := m.Header.Get(wire.HeaderBatchID); id != "" {
			inBatches++
			batches[id]++
			ended[id] = m.Header.Get("Nats-Batch-Commit") != ""
		}
	}
	if msgs := slotStream.CachedInfo().State.Msgs; len(slots) != n || int(msgs) != n {
		t.Errorf("%d messages of %d slots are stored, want one of each of %d", msgs, len(slots), n)
	}
	for id, parts := range batches {
		if !ended[id] {
			t.Errorf("%d parts of batch %s are stored without its last one", parts, id)
		}
	}
	return inBatches
}

func TestPublicationsThatWaitOnSlowStorageGoInBatches(t *testing.T) {
	t.Parallel()
	js := natstest.Run(t).JetStream()
	s := openStore(t, js)
	s.Intercept(func(p wire.Port) wire.Port { return slowPort{p} })
	// On a busy machine the broker can seem more distant than it is, and its storage fast, until the
	// group measures again.
	const once = 600
	n, inBatches := 0, 0
	natstest.Eventually(t, "slots to be published in batches", func() bool {
		publishUntilStored(t, s, upTo(n + once)[n:])
		n += once
		before := inBatches
		inBatches = wantWhole(t, js, n)
		return inBatches-before >= once/2
	})
	found := 0
	for w, err := range s.Slots().Waiting(t.Context(), stream.WaitingFilter{}) {
		if err != nil || string(w.Payload) != `{"n":1}` {
			t.Fatalf("%+v, %v", w, err)
		}
		found++
	}
	if found != n {
		t.Errorf("%d of %d slots can be read", found, n)
	}
}

func TestAKnownMessageIDInABatchFoldsItsOwnPublicationOnly(t *testing.T) {
	t.Parallel()
	js := natstest.Run(t).JetStream()
	s := openStore(t, js)
	known := map[int]bool{200: true, 300: true, 301: true}
	publishUntilStored(t, s, slices.Collect(maps.Keys(known)))
	s.Intercept(func(p wire.Port) wire.Port { return slowPort{p} })
	for i, r := range publishAll(t, s, upTo(400)) {
		// On a busy machine, the answer may be late.
		if r.duplicate != known[i] && !errors.Is(r.err, job.ErrUnknown) {
			t.Errorf("slot %d: %+v", i, r)
		}
	}
	publishUntilStored(t, s, upTo(400))
	wantWhole(t, js, 400)
}

// first calls f after a number of parts of batches, once.
type first struct {
	wire.Port
	after *atomic.Int64
	f     func()
}

func (p first) PublishMsg(m *nats.Msg) error {
	err := p.Port.PublishMsg(m)
	if m.Header.Get(wire.HeaderBatchID) != "" && p.after.Add(-1) == 0 {
		p.f()
	}
	return err
}

func afterParts(s *kv.Store, parts int64, f func()) {
	after := &atomic.Int64{}
	after.Store(parts)
	s.Intercept(func(p wire.Port) wire.Port { return first{slowPort{p}, after, f} })
}

func TestABatchOfPublicationsThatIsSeveredIsPublishedAgain(t *testing.T) {
	t.Parallel()
	for _, parts := range []int64{1, 100, 425, 600} {
		through, beside, p := behind(t)
		afterParts(through, parts, func() {
			_ = through.Conn().Flush() // the server has received these parts
			p.Cut()
			time.AfterFunc(time.Millisecond, p.Heal)
		})
		publishUntilStored(t, through, upTo(1000))
		wantWhole(t, beside.JS, 1000)
	}
}

func TestABatchOfPublicationsWhoseAnswerIsLostIsUnknown(t *testing.T) {
	t.Parallel()
	through, beside, p := behind(t)
	afterParts(through, 1, p.Deafen)
	unknown := 0
	for i, r := range publishAll(t, through, upTo(1000)) {
		if r.err != nil {
			unknown++
		}
		if r.err != nil && !errors.Is(r.err, job.ErrUnknown) {
			t.Fatalf("slot %d: %v", i, r.err)
		}
	}
	if unknown == 0 {
		t.Error("no publication was unknown")
	}
	p.Heal()
	publishUntilStored(t, through, upTo(1000))
	wantWhole(t, beside.JS, 1000)
}

func TestABatchThatDoesNotFitFillsTheStreamSingly(t *testing.T) {
	t.Parallel()
	js := natstest.Run(t).JetStream()
	s := openStore(t, js)
	slotStream, err := js.Stream(t.Context(), "cronce_slots")
	if err != nil {
		t.Fatal(err)
	}
	config := slotStream.CachedInfo().Config
	config.MaxMsgs = 300
	if _, err := js.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	s.Intercept(func(p wire.Port) wire.Port { return slowPort{p} })
	full := 0
	for n, err := range publishUntilAnswered(t, s, upTo(400), inDefault) {
		if errors.Is(err, job.ErrFull) {
			full++
		} else if err != nil {
			t.Errorf("slot %d: %v", n, err)
		}
	}
	if full != 100 {
		t.Errorf("%d publications were refused, want 100", full)
	}
	wantWhole(t, js, 300)
}

// The server reports only the last message of a batch to the login that may not send it.
func TestADeniedPublicationInABatchDeniesNoOther(t *testing.T) {
	t.Parallel()
	server := natstest.Run(t, func(o *natsserver.Options) {
		o.Users = []*natsserver.User{
			{Username: "all", Password: "p"},
			{Username: "some", Password: "p", Permissions: &natsserver.Permissions{
				Publish: &natsserver.SubjectPermission{Deny: []string{"cronce.slot.bulk.>"}},
			}},
		}
	})
	js := server.JetStream(nats.UserInfo("all", "p"))
	openStore(t, js)
	s := openStore(t, server.JetStream(nats.UserInfo("some", "p")))
	s.Intercept(func(p wire.Port) wire.Port { return slowPort{p} })
	bulk := func(i int) bool { return i == 200 || i == 399 } // 399 ends the first batch
	for n, err := range publishUntilAnswered(t, s, upTo(400), func(i int) string {
		if bulk(i) {
			return "bulk"
		}
		return "default"
	}) {
		if bulk(n) && !errors.Is(err, job.ErrDenied) || !bulk(n) && err != nil {
			t.Errorf("slot %d: %v", n, err)
		}
	}
	wantWhole(t, js, 398)
}

func TestPublicationsInBatchesSurviveAChangeOfLeader(t *testing.T) {
	t.Parallel()
	c := natstest.RunCluster(t)
	s, beside := openStore(t, c.JetStream()), c.JetStream()
	afterParts(s, 250, c.Leader("cronce_slots").Stop)
	publishUntilStored(t, s, upTo(1000))
	wantWhole(t, beside, 1000)
}

package intake_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// bubble runs a test in a world with the streams A and B.
func bubble(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.stream("A", false)
		w.stream("B", false)
		f(t, w)
	})
}

func TestAMessageIsAckedOnlyAfterItsSlotIsPublished(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.define(on("A", "x"))
		failures := 2
		w.put = func(m core.Message) error { // w.mu is held
			if w.consumers["A/c=charge"].unacked[1] == nil {
				t.Errorf("%s is published after its message was acked", m.Slot)
			}
			if failures--; failures >= 0 {
				return errors.New("no room")
			}
			return nil
		}
		defer w.run(t.Context(), 0)()
		time.Sleep(time.Second)
		token := w.publish("A", "x", "")
		w.wants("after two failures", token)
		if c := w.consumers["A/c=charge"]; len(c.unacked) != 0 {
			t.Errorf("unacked: %v", c.unacked)
		}
	})
}

// The producer dies before it has published the slot.
func TestAMessageOfADeadProducerIsTakenByAnother(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.define(on("A", "x"))
		w.put = func(core.Message) error { return errors.New("no answer") }
		stop := w.run(t.Context(), 0)
		time.Sleep(time.Second)
		token := w.publish("A", "x", "")
		time.Sleep(time.Second)
		stop()
		w.set(func() { w.put = func(core.Message) error { return nil } })
		defer w.run(t.Context(), 0)()
		w.wants("with another producer", token)
	})
}

func TestAnUnreadableDefinitionKeepsTheConsumer(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.define(on("A", "x"))
		defer w.run(t.Context(), 0)()
		time.Sleep(time.Second)
		first := w.publish("A", "x", "")
		w.wants("before", first)
		w.set(func() { w.broken = true })
		second := w.publish("A", "x", "")
		w.wants("while it cannot be read", first)
		w.has("while it cannot be read", "A x")
		w.set(func() { w.broken = false })
		w.wants("when it can be read again", first, second)
		if len(w.removed) > 0 {
			t.Errorf("removed: %v", w.removed)
		}
	})
}

// Another client may leave out the queue of a definition (V-5).
func TestAMessageStartsAJobWhoseDefinitionNamesNoQueue(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.define(on("A", "x"))
		w.set(func() { w.entry.Job.Queue = "" })
		defer w.run(t.Context(), 0)()
		time.Sleep(time.Second)
		w.wants("without a queue", w.publish("A", "x", ""))
	})
}

func TestAConsumerIsRemovedWithItsJob(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.define(on("A", "x"))
		defer w.run(t.Context(), 0)()
		time.Sleep(time.Second)
		w.has("with the job", "A x")
		w.set(func() { w.entry, w.unanswered = nil, 2 })
		time.Sleep(time.Minute)
		w.has("without the job")
	})
}

// One producer does not know the edits for an hour, and lacks the job for a time.
func TestAConsumerIsNotRemovedByAProducerThatLags(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.define(on("A", "x"))
		const lag = time.Hour
		defer w.run(t.Context(), 0)()
		defer w.run(t.Context(), lag)()
		time.Sleep(lag + time.Minute)
		w.define(on("B", "x"))
		w.define(on("A", "x"))
		token := w.publish("A", "x", "")
		w.wants("soon", token)
		w.has("soon", "A x")
		time.Sleep(2 * lag)
		w.has("later", "A x")
	})
}

// A producer pulls messages from a consumer. The stream and the consumer are deleted and created
// again, and the new consumer answers.
func TestMessagesOfANewConsumerAreNotNamedByTheOldStream(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		e := w.define(on("A", "x"))
		defer w.run(t.Context(), 0)()
		time.Sleep(time.Second)
		// Replace both at once, so that no pull request ends with the old consumer.
		w.mu.Lock()
		old := w.consumers["A/c=charge"]
		s := &fakeStream{created: time.Now()}
		w.streams["A"] = s
		w.made++
		anew := *old
		anew.s, anew.Created, anew.StreamCreated = s, time.Now().Add(w.made), s.created
		old.s, old.passed, old.delivered, old.unacked = s, 0, 0, anew.unacked
		w.consumers["A/c=charge"] = &anew
		w.mu.Unlock()
		token := w.publish("A", "x", "")
		w.wants("of "+e.Job.Name, token)
	})
}

func TestAnEditOfTheSubjectKeepsTheOldPlansMessagesAndRunsNoEarlierOnes(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.define(on("A", "x"))
		defer w.run(t.Context(), 0)()
		time.Sleep(time.Second)
		w.pause(true)
		time.Sleep(time.Minute)
		waiting := []string{w.publish("A", "x", ""), w.publish("A", "x", "")}
		for range 5 {
			w.publish("A", "y", "") // of no plan: stored before the edit
		}
		time.Sleep(time.Second)
		w.define(on("A", "y"))
		w.publish("A", "y", "") // of no plan: stored at the instant of the edit, when the old plan was in force
		time.Sleep(time.Second)
		w.publish("A", "x", "") // of no plan: stored after the edit
		after := w.publish("A", "y", "")
		w.wants("while paused")
		w.pause(false)
		w.wants("when resumed", append(waiting, after)...)
		w.has("when resumed", "A y")
	})
}

// The producer gets the edit after ten seconds.
func TestAProducerThatLagsBehindAnEditTakesNothingByTheOldPlan(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.define(on("A", "x"))
		defer w.run(t.Context(), 10*time.Second)()
		time.Sleep(time.Minute)
		before := w.publish("A", "x", "")
		time.Sleep(time.Second)
		w.define(on("A", "y"))
		time.Sleep(time.Second)
		w.publish("A", "x", "")
		after := w.publish("A", "y", "")
		w.wants("in the end", before, after)
	})
}

func TestAConsumerIsNotRemovedBeforeItsPlanIsDrained(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.define(on("A", "x"))
		w.put = func(core.Message) error { return errors.New("no room") }
		defer w.run(t.Context(), 0)()
		time.Sleep(time.Second)
		token := w.publish("A", "x", "")
		time.Sleep(time.Second)
		w.define(on("A", "y"))
		time.Sleep(time.Second)
		for range 100 { // more than one pull request asks for
			w.publish("A", "x", "")
			time.Sleep(time.Second)
		}
		w.has("while there is no room", "A x", "A y")
		w.set(func() { w.put = func(core.Message) error { return nil } })
		w.wants("when there is room", token)
		w.has("when there is room", "A y")
	})
}

func TestAPlanThatEndedWhileNoProducerRanIsDrained(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.define(on("A", "x"))
		time.Sleep(time.Second)
		before := w.publish("A", "x", "")
		time.Sleep(time.Second)
		w.define(on("B", "x"))
		time.Sleep(time.Second)
		after := w.publish("B", "x", "")
		defer w.run(t.Context(), 0)()
		w.wants("all", before, after)
		w.has("in the end", "B x")
	})
}

func TestAPlanWithoutAStreamDoesNotHoldUpTheNextPlan(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.define(on("NONE", "x"))
		defer w.run(t.Context(), 0)()
		time.Sleep(time.Minute)
		w.define(on("A", "x"))
		time.Sleep(time.Second)
		w.wants("of the next plan", w.publish("A", "x", ""))
	})
}

// Another producer starts while the stream of the earlier plan does not answer.
func TestAPlanWhoseStreamHasNoLeaderDoesNotHoldUpTheNextPlan(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.define(on("A", "x"))
		stop := w.run(t.Context(), 0)
		time.Sleep(time.Second)
		w.define(on("B", "x"))
		w.wants("of A")
		stop()
		w.set(func() { w.leaderless = "A" })
		defer w.run(t.Context(), 0)()
		second := w.publish("B", "x", "")
		time.Sleep(time.Minute)
		w.wants("of B", second)
	})
}

// Another producer starts after the plan was drained.
func TestADrainedPlanIsNotBegunAgain(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.define(on("A", "x"))
		stop := w.run(t.Context(), 0)
		time.Sleep(time.Second)
		first := w.publish("A", "x", "")
		time.Sleep(time.Second)
		w.define(on("B", "x"))
		w.wants("of A", first)
		w.has("of B", "B x")
		stop()
		w.set(func() { clear(w.slots) })
		defer w.run(t.Context(), 0)()
		w.wants("with another producer")
		w.has("with another producer", "B x")
	})
}

func TestAJobThatGetsAScheduleDrainsItsMessages(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.define(on("A", "x"))
		stop := w.run(t.Context(), 0)
		time.Sleep(time.Second)
		stop()
		token := w.publish("A", "x", "")
		time.Sleep(time.Second)
		w.define(job.Job{Name: "charge", Schedule: "@daily"})
		defer w.run(t.Context(), 0)()
		w.wants("of the plan before", token)
		w.has("in the end")
	})
}

// A work queue keeps each message until it is acked, so a message of no plan must not be acked. The
// server refuses two consumers of one subject.
func TestAnEditOnAWorkQueueLosesNoMessagesAndTakesNoOthers(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.stream("A", true)
		early := w.publish("A", "x", "")
		w.define(on("A", "x"))
		stop := w.run(t.Context(), 0)
		time.Sleep(time.Second)
		stop()
		waiting := w.publish("A", "x", "")
		time.Sleep(time.Second)
		w.define(on("A", "y"))
		time.Sleep(time.Second)
		w.publish("A", "x", "") // of no plan
		after := w.publish("A", "y", "")
		defer w.run(t.Context(), 0)()
		defer w.run(t.Context(), 0)()
		w.wants("all", early, waiting, after)
		w.has("in the end", "A y")
		w.set(func() {
			if w.streams["A"].messages[2].gone {
				t.Error("a message of no plan was acked")
			}
		})
	})
}

// An older program had one consumer for all plans, and named runs by the sequences of their messages
// alone. It may have published some of these runs, so they keep their names.
func TestAConsumerOfAnOlderProgramIsAdoptedAndItsMessagesKeepTheirNames(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.define(on("A", "x"))
		time.Sleep(time.Second)
		if err := w.begin("c=charge", job.On{Stream: "A", Subject: "x"}, time.Time{}, time.Now()); err != nil {
			t.Fatal(err)
		}
		w.publish("A", "x", "")
		defer w.run(t.Context(), 0)()
		time.Sleep(10 * time.Second)
		w.publish("A", "x", "")
		w.wants("of the time before", "1", "2")
		time.Sleep(time.Minute)
		w.wants("later", "1", "2", w.publish("A", "x", ""))
		w.has("in the end", "A x")
	})
}

// The job is deleted and created again while no producer runs.
func TestAConsumerOfAJobThatWasCreatedAgainIsReplaced(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.define(on("A", "x"))
		stop := w.run(t.Context(), 0)
		time.Sleep(time.Second)
		stop()
		w.publish("A", "x", "")
		time.Sleep(time.Second)
		w.set(func() { w.entry = nil })
		w.define(on("A", "x"))
		time.Sleep(time.Second)
		defer w.run(t.Context(), 0)()
		w.wants("of the new job", w.publish("A", "x", ""))
	})
}

// The next plan, on another stream, is drained first.
func TestAConsumerIsKeptUntilTheMessagesOfItsOwnPlanAreTaken(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.put = func(core.Message) error { return errors.New("no space") }
		w.define(on("A", "x"))
		defer w.run(t.Context(), 0)()
		time.Sleep(time.Second)
		token := w.publish("A", "x", "")
		time.Sleep(time.Second)
		w.define(on("B", "x"))
		time.Sleep(time.Second)
		w.define(on("B", "y"))
		time.Sleep(time.Minute)
		w.set(func() { w.put = func(core.Message) error { return nil } })
		w.wants("after the delay", token)
		w.has("in the end", "B y")
	})
}

func TestASlotIsDueWhenItsMessageWasStored(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.define(on("A", "x"))
		time.Sleep(time.Second)
		stored := time.Now()
		token := w.publish("A", "x", "")
		time.Sleep(time.Hour)
		defer w.run(t.Context(), 0)()
		w.wants("all", token)
		if m := w.slots["charge:@"+token]; !m.Event || !m.Due.Equal(stored) {
			t.Errorf("got %+v, want one of an event of %v", m, stored)
		}
	})
}

// After any edits, pauses and restarts, a message has started a run if and only if the plan that was in
// force when it was stored matches it.
func TestEachMessageIsJudgedByThePlanOfItsTime(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		workQueue := rapid.Bool().Draw(r, "work queue")
		steps := rapid.SliceOfN(rapid.IntRange(0, 9), 5, 30).Draw(r, "steps")
		// In the bubble nothing may be drawn: rapid ends a draw with a panic.
		pauses := rapid.SliceOfN(rapid.IntRange(1, 5000), len(steps), len(steps)).Draw(r, "pauses in ms")
		lags := rapid.SliceOfN(rapid.SampledFrom([]time.Duration{0, 100 * time.Millisecond, 3 * time.Second}), 1, 3).Draw(r, "lags")
		var failed string
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.stream("A", workQueue)
			w.stream("B", workQueue)
			w.define(on("A", "x"))
			stops := make([]func(), len(lags))
			for i, lag := range lags {
				stops[i] = w.run(t.Context(), lag)
			}
			var want []string
			pick := func(i int, of ...string) string { return of[i%len(of)] }
			for i, step := range steps {
				time.Sleep(time.Duration(pauses[i]) * time.Millisecond)
				switch {
				case step <= 4:
					stream, subject := pick(i, "A", "B"), pick(i/2, "x", "y")
					token := w.publish(stream, subject, "")
					if w.entry.Job.On == (job.On{Stream: stream, Subject: subject}) || w.entry.Job.On == (job.On{Stream: stream, Subject: "all"}) {
						want = append(want, token)
					} else if workQueue {
						w.set(func() { // another worker takes it
							all := w.streams[stream].messages
							all[len(all)-1].gone = true
						})
					}
				case step <= 6:
					w.define(on(pick(i, "A", "A", "B"), pick(i/3, "x", "y", "all")))
				case step == 7:
					w.pause(!w.entry.Paused)
				default:
					k := i % len(lags)
					stops[k]()
					stops[k] = w.run(t.Context(), lags[k])
				}
			}
			time.Sleep(time.Millisecond)
			w.pause(false)
			time.Sleep(5 * time.Minute)
			slices.Sort(want)
			if got := w.ran(); !slices.Equal(got, want) {
				failed = fmt.Sprintf("runs %v, want %v", got, want)
			}
			if len(w.consumers) != 1 {
				failed += fmt.Sprintf(" consumers %v are left", slices.Collect(maps.Keys(w.consumers)))
			}
			for _, stop := range stops {
				stop()
			}
		})
		if failed != "" {
			r.Fatal(failed)
		}
	})
}

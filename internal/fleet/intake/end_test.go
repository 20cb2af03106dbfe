package intake_test

import (
	"slices"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// The stream gets a leader with a slower clock after the plan's end.
func TestAPlanIsNotDrainedWhileItsStreamMayStillStoreMessagesOfItsTime(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.define(on("A", "x"))
		defer w.run(t.Context(), 0)()
		time.Sleep(time.Minute)
		end := w.define(on("B", "x")).Since()
		time.Sleep(9 * time.Second)
		token := w.publishAt("A", "x", "", end.Add(-time.Millisecond))
		w.wants("after the end", token)
		w.has("in the end", "B x")
	})
}

// The slots of older messages would expire.
func TestAPlanThatEndedBeginsNoEarlierThanTheHorizon(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.define(on("A", "x"))
		time.Sleep(time.Second)
		w.publish("A", "x", "") // two days before the first producer starts
		time.Sleep(47 * time.Hour)
		within := w.publish("A", "x", "")
		time.Sleep(time.Second)
		w.define(on("B", "x"))
		time.Sleep(time.Hour)
		defer w.run(t.Context(), 0)()
		w.wants("of the plan that ended", within)
		w.has("in the end", "B x")
	})
}

func TestTheCurrentPlanBeginsWithItsFirstMessageAtAnyAge(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.define(on("A", "x"))
		time.Sleep(time.Second)
		token := w.publish("A", "x", "")
		time.Sleep(48 * time.Hour)
		defer w.run(t.Context(), 0)()
		w.wants("of the current plan", token)
	})
}

// A work queue delivers messages of any age.
func TestAPlanThatEndedBeforeTheHorizonIsNotBegun(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.stream("A", true)
		w.define(on("A", "x"))
		time.Sleep(time.Second)
		w.publish("A", "x", "")
		time.Sleep(time.Second)
		w.define(on("B", "x"))
		time.Sleep(25 * time.Hour)
		after := w.publish("B", "x", "")
		defer w.run(t.Context(), 0)()
		w.wants("of the current plan", after)
		if len(w.removed) > 0 {
			t.Errorf("consumers were created and removed: %v", w.removed)
		}
	})
}

// If the plan counted as drained, the next plan would begin, and no producer would take the message.
func TestAPlanThatEndedIsBegunAgainIfItsConsumerCannotBeCreatedNow(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.define(on("A", "x"))
		time.Sleep(time.Second)
		before := w.publish("A", "x", "")
		time.Sleep(time.Second)
		w.define(on("B", "x"))
		time.Sleep(time.Second)
		after := w.publish("B", "x", "")
		w.set(func() { w.unbegun = []error{job.ErrUnknown, job.ErrFull, job.ErrUnknown} })
		defer w.run(t.Context(), 0)()
		time.Sleep(time.Second)
		w.has("before an answer")
		w.wants("in the end", before, after)
		w.has("in the end", "B x")
	})
}

// Another producer starts when the job has no consumer any more.
func TestAPlanBeforeAScheduleIsNotBegunAgain(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.define(on("A", "x"))
		stop := w.run(t.Context(), 0)
		time.Sleep(time.Second)
		token := w.publish("A", "x", "")
		time.Sleep(time.Second)
		w.define(job.Job{Name: "charge", Schedule: "@daily"})
		w.wants("of the plan before", token)
		stop()
		w.set(func() { clear(w.slots) })
		defer w.run(t.Context(), 0)()
		w.wants("with another producer")
		if len(w.removed) != 1 {
			t.Errorf("consumers were created and removed: %v", w.removed)
		}
	})
}

// Another producer starts when the job has no consumer any more, and cannot see that it has none on B.
func TestPlansBeforeAScheduleAreNotBegunAgainWhileOneStreamHasNoLeader(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.define(on("A", "x"))
		stop := w.run(t.Context(), 0)
		time.Sleep(time.Second)
		token := w.publish("A", "x", "")
		time.Sleep(time.Second)
		w.define(on("B", "x"))
		time.Sleep(time.Minute)
		w.define(job.Job{Name: "charge", Schedule: "@daily"})
		w.wants("of the plans before", token)
		w.has("when they are drained")
		stop()
		w.set(func() { w.leaderless = "B"; clear(w.slots) })
		defer w.run(t.Context(), 0)()
		time.Sleep(5 * time.Minute)
		w.wants("with another producer")
	})
}

// A work queue has one consumer of the job at a time, so that of the earlier plan is removed first.
func TestEachPlanBeforeAScheduleIsDrained(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.stream("A", true)
		w.define(on("A", "x"))
		stop := w.run(t.Context(), 0)
		time.Sleep(time.Second)
		stop()
		first := w.publish("A", "x", "")
		time.Sleep(time.Second)
		w.define(on("A", "y"))
		time.Sleep(time.Second)
		second := w.publish("A", "y", "")
		time.Sleep(time.Second)
		w.define(job.Job{Name: "charge", Schedule: "@daily"})
		defer w.run(t.Context(), 0)()
		w.wants("of both plans", first, second)
		w.has("in the end")
	})
}

// The server does not count messages that were replaced as unacked, and sends no word of them.
func TestAPlanIsNotDrainedByMessagesFromAfterItsEndThatWereReplaced(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.define(on("A", "all"))
		w.set(func() { w.put = func(core.Message) error { return job.ErrUnknown } })
		defer w.run(t.Context(), 0)()
		time.Sleep(time.Second)
		before := w.publish("A", "x", "")
		time.Sleep(3 * time.Second)
		w.define(on("B", "x"))
		for range 3 {
			time.Sleep(3 * time.Second)
			w.replace("A", "y")
		}
		time.Sleep(10 * time.Second)
		w.set(func() { w.put = func(core.Message) error { return nil } })
		w.wants("of the plan that ended", before)
		w.has("in the end", "B x")
	})
}

// The number of its first delivery went to a producer that has ended, so the ack floor says nothing.
func TestAPlanWithoutMessagesIsDrainedAlthoughOneFromAfterItsEndStays(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.define(on("A", "x"))
		stop := w.run(t.Context(), 0)
		time.Sleep(time.Second)
		w.define(on("B", "x"))
		time.Sleep(time.Second)
		w.publish("A", "y", "") // of no job
		w.publish("A", "x", "")
		time.Sleep(3 * time.Second)
		stop()
		defer w.run(t.Context(), 0)()
		time.Sleep(2 * time.Minute)
		w.has("in the end", "B x")
	})
}

// The producer ends after it removed the consumer of x, and before it created that of y.
func TestAPlanOnAWorkQueueIsBegunAfterTheJobGotAScheduleIfMessagesOfItAreLeft(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.stream("A", true)
		w.define(on("A", "x"))
		stop := w.run(t.Context(), 0)
		time.Sleep(time.Second)
		first := w.publish("A", "x", "")
		time.Sleep(time.Second)
		w.set(func() { w.unbegun = slices.Repeat([]error{job.ErrUnknown}, 1000) })
		w.define(on("A", "y"))
		time.Sleep(time.Second)
		second := w.publish("A", "y", "")
		time.Sleep(time.Second)
		w.define(job.Job{Name: "charge", Schedule: "@daily"})
		w.wants("of the first plan", first)
		stop()
		w.set(func() { w.unbegun = nil })
		defer w.run(t.Context(), 0)()
		w.wants("of both plans", first, second)
		w.has("in the end")
	})
}

// The stream had a leader with a slower clock for a moment, so its first message is not the one that was
// stored first.
func TestAPlanOnAWorkQueueIsBegunThoughTheFirstMessageLeftIsFromAfterItsEnd(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.stream("A", true)
		w.define(on("A", "x"))
		time.Sleep(time.Second)
		end := w.define(job.Job{Name: "charge", Schedule: "@daily"}).Since()
		time.Sleep(time.Second)
		w.publish("A", "x", "")
		token := w.publishAt("A", "x", "", end.Add(-time.Millisecond))
		time.Sleep(time.Minute)
		defer w.run(t.Context(), 0)()
		w.wants("of the plan that ended", token)
		w.has("in the end")
	})
}

// The producer ends when the stream of the first plan has no leader.
func TestAPlanOnAWorkQueueKeepsItsConsumerUntilTheNextStreamHasOne(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.stream("A", true)
		w.define(on("A", "x"))
		stop := w.run(t.Context(), 0)
		time.Sleep(time.Second)
		w.set(func() { w.unbegun = slices.Repeat([]error{job.ErrUnknown}, 1000) })
		w.define(on("B", "y"))
		time.Sleep(time.Second)
		token := w.publish("B", "y", "")
		time.Sleep(time.Minute)
		w.define(job.Job{Name: "charge", Schedule: "@daily"})
		time.Sleep(time.Minute)
		w.has("while B has no leader", "A x")
		stop()
		w.set(func() { w.unbegun = nil })
		defer w.run(t.Context(), 0)()
		w.wants("of both plans", token)
		w.has("in the end")
	})
}

// The later plan is given up, since its stream does not exist.
func TestAConsumerIsRemovedThoughALaterPlanNeverGetsOne(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.define(on("A", "x"))
		defer w.run(t.Context(), 0)()
		time.Sleep(time.Second)
		w.define(on("NONE", "x"))
		time.Sleep(time.Second)
		w.define(job.Job{Name: "charge", Schedule: "@daily"})
		time.Sleep(2 * time.Minute)
		w.has("in the end")
	})
}

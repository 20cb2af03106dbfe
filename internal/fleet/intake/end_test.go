package intake_test

import (
	"testing"
	"time"
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
func TestAPlanThatEndedIsBegunAgainIfTheCreationOfItsConsumerGetsNoAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.define(on("A", "x"))
		time.Sleep(time.Second)
		before := w.publish("A", "x", "")
		time.Sleep(time.Second)
		w.define(on("B", "x"))
		time.Sleep(time.Second)
		after := w.publish("B", "x", "")
		w.set(func() { w.unbegun = 3 })
		defer w.run(t.Context(), 0)()
		time.Sleep(time.Second)
		w.has("before an answer")
		w.wants("in the end", before, after)
		w.has("in the end", "B x")
	})
}

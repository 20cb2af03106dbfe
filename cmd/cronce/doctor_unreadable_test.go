package main

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// A watermark of a newer version stops neither producers nor workers, and is moved back
// only with --force. A running producer replaces a watermark that is garbled.
func TestUnreadableWatermarkStopsNothingAndIsResetByForce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	js, err := jetstream.New(natstest.Connect(t, f.url))
	if err != nil {
		t.Fatal(err)
	}
	state, err := js.KeyValue(t.Context(), "cronce_state")
	if err != nil {
		t.Fatal(err)
	}
	put := func(value string) {
		if _, err := state.PutString(t.Context(), "watermark", value); err != nil {
			t.Fatal(err)
		}
	}
	succeeded := func() (n int) {
		for e, err := range f.store.Ledger().List(t.Context(), kv.ListFilter{}) {
			if err == nil && e.State == job.Succeeded {
				n++
			}
		}
		return n
	}
	readable := func() bool { _, _, err := f.store.Watermark().Read(t.Context()); return err == nil }
	runsOn := func(when string) {
		t.Helper()
		before := succeeded()
		natstest.Eventually(t, "slots to run "+when, func() bool { return succeeded() >= before+3 })
	}
	put(`{"v":99}`)
	f.replica(t)
	runsOn("with a watermark of a newer version")
	f.finds(t, "watermark watermark")
	if readable() {
		t.Error("a watermark of a newer version was written over")
	}
	if r := f.run(t, "doctor", "--reset-watermark"); r.code != base.ExitFailed || !strings.Contains(r.stderr, "--force") {
		t.Errorf("reset without force: %+v", r)
	}
	if r := f.run(t, "doctor", "--force"); r.code != base.ExitUsage {
		t.Errorf("force without a reset: %+v", r)
	}
	if r := f.run(t, "doctor", "--reset-watermark", "--force"); !strings.HasPrefix(r.stdout, "the watermark was moved back") {
		t.Errorf("reset by force: %+v", r)
	}
	runsOn("after the reset")
	put("what is this")
	natstest.Eventually(t, "the watermark to be written anew", readable)
	runsOn("with a watermark that was garbled")
	f.finds(t)
}

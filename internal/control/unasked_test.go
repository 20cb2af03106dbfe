package control_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/control"
	"github.com/cronce-io/cronce/internal/core"
)

func TestSlotThatIdleWorkersLeaveIsNotExplainedByWantOfAPlace(t *testing.T) {
	s := newShop(t)
	slot := s.slot()
	s.publish(core.Message{Slot: slot}, "")
	explain := func(running int, after time.Duration) string {
		t.Helper()
		_, revision, _ := s.store.Nodes().Read(t.Context(), "web1-1")
		n := core.Node{Name: "web1-1", State: core.NodeAlive, Lease: time.Hour, Worker: true, Queues: []string{"default"}, Handlers: []string{"report"}, Running: running, Nonce: "n" + time.Now().String()}
		if _, err := s.store.Nodes().Write(t.Context(), n, revision); err != nil {
			t.Fatal(err)
		}
		c := control.New(control.Config{
			Jobs: s.store.Jobs(), Nodes: s.store.Nodes(), Ledger: s.store.Ledger(), Slots: s.store.Slots(), Timers: s.store.Timers(),
			Watermark: s.store.Watermark(), Locks: s.store.Locks(), Fleet: s.store, Settings: s.store.Settings(),
			Now: func(context.Context) (time.Time, error) { return time.Now().Add(after), nil },
		})
		story, err := c.Explain(t.Context(), slot)
		if err != nil {
			t.Fatal(err)
		}
		return story.Why
	}
	const place, ready = "for a free worker", "a service that they call is not ready"
	for _, test := range []struct {
		running int
		after   time.Duration
		want    string
	}{{0, 0, place}, {16, time.Minute, place}, {0, time.Minute, ready}} {
		if why := explain(test.running, test.after); !strings.Contains(why, test.want) {
			t.Errorf("%d run on its worker, it waits for %v: %q, want %q", test.running, test.after, why, test.want)
		}
	}
}

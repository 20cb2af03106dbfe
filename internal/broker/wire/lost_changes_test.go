package wire_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
)

// A broken connection loses the changes that are on their way. Here another client takes them.
func TestChangesBeginsAgainWithAChangeThatWasLost(t *testing.T) {
	t.Parallel()
	const pulled = 5000 // by one request
	for name, n := range map[string]int{"in the middle": pulled + 20, "at the end": pulled + 10} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			js := natstest.Run(t).JetStream()
			s := openStore(t, js)
			for i := range n {
				if _, err := js.PublishAsync(fmt.Sprintf("$KV.cronce_ledger.report.t.k%06d", i), nil, jetstream.WithStallWait(natstest.Patience)); err != nil {
					t.Fatal(err)
				}
			}
			<-js.PublishAsyncComplete()
			var at wire.Cursor
			var lost error
			seen := map[string]bool{}
			for c, err := range s.Ledger().Changes(t.Context(), &at) {
				if lost = err; err != nil {
					break
				}
				if seen[c.Slot.ID()] = true; len(seen) == pulled {
					take(t, js, "KV_cronce_ledger", 10)
				}
			}
			if !errors.Is(lost, job.ErrUnknown) || len(seen) != pulled {
				t.Errorf("Changes ended with %v after %d changes, want %v after %d", lost, len(seen), job.ErrUnknown, pulled)
			}
			for c, err := range s.Ledger().Changes(t.Context(), &at) {
				if err != nil {
					t.Fatal(err)
				}
				seen[c.Slot.ID()] = true
			}
			if len(seen) != n {
				t.Errorf("%d of %d changes were seen", len(seen), n)
			}
		})
	}
}

// take receives messages of the stream's only consumer.
func take(t *testing.T, js jetstream.JetStream, stream string, n int) {
	t.Helper()
	st, err := js.Stream(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	for info := range st.ListConsumers(t.Context()).Info() {
		c, err := st.Consumer(t.Context(), info.Name)
		if err != nil {
			t.Fatal(err)
		}
		batch, err := c.Fetch(n)
		if err != nil {
			t.Fatal(err)
		}
		for range batch.Messages() {
			n--
		}
	}
	if n != 0 {
		t.Fatalf("%d messages were not received", n)
	}
}

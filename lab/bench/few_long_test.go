//go:build long

package bench_test

import (
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/lab/bench"
)

// A server that may buffer few messages for a stream refuses the others. A producer has all of
// its slots stored in the end, and repeats few.
func TestAServerThatTakesFewAtATimeHasAllSlots(t *testing.T) {
	t.Parallel()
	const slots, few = 4000, 100
	srv := natstest.Run(t, func(o *server.Options) { o.StreamMaxBufferedMsgs = few })
	p, err := bench.PublishDue(t.Context(), connectTo(srv.ClientURL()), "few", 1, slots, 1)
	if err != nil {
		t.Fatal(err)
	}
	// How many are refused depends on the machine, and is none if they wait for slow storage. A
	// producer that repeats without backing off sends hundreds of messages for each.
	if p.Sent < 1 || p.Sent > 20 {
		t.Errorf("%.2f messages for each slot, want few", p.Sent)
	}
}

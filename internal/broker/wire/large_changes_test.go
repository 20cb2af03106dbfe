package wire_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/internal/lab/natstest"
)

// A server closes a connection for which more than max_pending bytes wait (64 MiB by default), and all
// slots of the node wait until it has a new one. 5000 large records are more than that.
func TestChangesAsksForNoMoreBytesThanAServerHoldsForAConnection(t *testing.T) {
	t.Parallel()
	const most = 10 << 20 // so the last message, of 9 MiB, is larger than a request is otherwise
	srv := natstest.Run(t, func(o *server.Options) { o.MaxPayload = most })
	js := srv.JetStream()
	s := openStore(t, js)
	ledger := wire.Bucket{Wire: s.Wire, Name: "cronce_ledger", Stream: "KV_cronce_ledger", Root: "$KV.cronce_ledger."}
	const n = 1200
	large := []byte(strings.Repeat("x", 20<<10))
	for i := range n {
		if _, err := js.PublishAsync(fmt.Sprintf("$KV.cronce_ledger.report.t.k%06d", i), large, jetstream.WithStallWait(natstest.Patience)); err != nil {
			t.Fatal(err)
		}
	}
	<-js.PublishAsyncComplete()
	if _, err := js.Publish(t.Context(), "$KV.cronce_ledger.report.t.last", []byte(strings.Repeat("x", 9<<20))); err != nil {
		t.Fatal(err)
	}
	nc := srv.Conn()
	pulls, err := nc.SubscribeSync("$JS.API.CONSUMER.MSG.NEXT.KV_cronce_ledger.*")
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	var at wire.Cursor
	seen := map[string]bool{}
	for e, err := range ledger.Changes(t.Context(), &at, false) {
		if err != nil {
			t.Fatal(err)
		}
		seen[e.Subject] = true
	}
	if len(seen) != n+1 {
		t.Errorf("%d of %d changes were seen", len(seen), n+1)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	requests := 0
	for left, _, _ := pulls.Pending(); left > 0; left-- {
		m, err := pulls.NextMsg(natstest.Patience)
		if err != nil {
			t.Fatal(err)
		}
		var pull struct {
			MaxBytes int `json:"max_bytes"`
		}
		if err := json.Unmarshal(m.Data, &pull); err != nil || pull.MaxBytes < 1 || pull.MaxBytes > 2*most {
			t.Errorf("a request is not bounded: %s %v", m.Data, err)
		}
		requests++
	}
	if requests < 3 {
		t.Errorf("%d requests were sent for 32 MiB, want at least 3", requests)
	}
}

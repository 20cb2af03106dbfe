//go:build long && unix

package integration

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// A record, and a plan of the past, give a slot more shards than memory has room for. That ends no process,
// and no command takes long: not the worker that receives the slot, not the sweep, and nothing that reads
// the ledger.
func TestRecordWithCountlessShardsHarmsNoNode(t *testing.T) {
	t.Parallel()
	s := newServedSite(t)
	file := s.jobs("echo $CRONCE_SLOT_ID >> touched", `name: tick, schedule: "* * * * * *", overlap: queue`, `name: report, schedule: "0 0 1 1 *"`, `name: after, after: [report]`)
	node := s.worker("w", file)
	eventually(t, "slots to run", func() bool { return len(s.touched()) > 0 })
	const countless = `9223372036854775807`
	now := time.Now().UTC()
	for i, state := range []string{"running", "succeeded", "retrying"} {
		token := string(rune('a' + i))
		value := `{"v":1,"id":"report:@` + token + `","queue":"default","state":"` + state + `","attempt":0,"node":"","nonce":"n","published":"` + now.Format(time.RFC3339) + `","shards":` + countless + `}`
		m := &nats.Msg{Subject: "$KV.cronce_ledger.report.t." + token, Data: []byte(value), Header: nats.Header{"Cronce-State": {state}}}
		if _, err := s.js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"report:@" + token, "report:@" + token + "#1of2"} {
			if _, err := s.js.PublishMsg(t.Context(), &nats.Msg{Subject: "cronce.slot.default.report", Header: nats.Header{"Nats-Msg-Id": {id}}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	definition := `{"v":1,"job":{"name":"evil","queue":"default","attempts":3,"backoff":"1s","max_backoff":"1m0s","overlap":"skip","catch_up":"all","catch_up_max":1000,"plan":{"schedule":"* * * * * *","timezone":"UTC","dst_gap":"after","dst_overlap":"first"}},` +
		`"past":[{"from":"2026-01-01T00:00:00Z","plan":{"schedule":"* * * * * *","timezone":"UTC","dst_gap":"after","dst_overlap":"first","shards":` + countless + `}}],"owner":"file","node":"n","nonce":"n"}`
	if _, err := s.bucket("jobs").PutString(t.Context(), "evil", definition); err != nil {
		t.Fatal(err)
	}
	before := len(s.touched())
	eventually(t, "further slots to run", func() bool { return len(s.touched()) > before+2 })
	from, to := now.Add(-10*time.Second).Format(time.RFC3339), now.Format(time.RFC3339)
	for _, args := range [][]string{
		{"slot", "ls"}, {"slot", "show", "report:@a"}, {"slot", "explain", "report:@a"}, {"slot", "cancel", "report:@a"}, {"slot", "retry", "report:@b"},
		{"verify", "--from", from, "--to", to}, {"doctor"}, {"job", "ls"}, {"job", "show", "evil"},
	} {
		p := s.start(strings.Join(args, " "), args...)
		if code := p.exit(); code < 0 || code > 3 || strings.Contains(p.stderr(), "panic") {
			t.Errorf("cronce %v: %d: %.500s", args, code, p.stderr())
		}
		if out := p.stdout() + p.stderr(); strings.Count(out, "\n") > 500 {
			t.Errorf("cronce %v writes %d lines", args, strings.Count(out, "\n"))
		}
	}
	stream, err := s.js.Stream(t.Context(), "cronce_slots")
	if err != nil {
		t.Fatal(err)
	}
	if n := stream.CachedInfo().State.LastSeq; n > 1000 {
		t.Errorf("%d messages were published", n)
	}
	term(node)
}

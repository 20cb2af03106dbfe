//go:build long

package main

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/lab/kvtest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/kv"
	"github.com/cronce-io/cronce/lab/bench"
)

// A namespace that is in use beside it stays as it is, to the last message.
func TestBenchMeasuresEverythingAndLeavesNothing(t *testing.T) {
	t.Parallel()
	s := natstest.Run(t)
	kvtest.Open(t, s.JetStream(), kv.Options{})
	js := natstest.JetStream(t, natstest.Connect(t, s.ClientURL()))
	state := func() map[string]jetstream.StreamState {
		all := map[string]jetstream.StreamState{}
		for _, name := range streams(t, js) {
			stream, err := js.Stream(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			all[name] = stream.CachedInfo().State
		}
		return all
	}
	before := state()
	r := cli{}.run(t, "bench", "--server", s.ClientURL(), "--slots", "200", "--duration", "1s", "--producers", "2", "-o", "json")
	if r.code != base.ExitDone {
		t.Fatalf("%+v", r)
	}
	if !strings.Contains(r.stderr, "bench: publish") {
		t.Errorf("what it was doing is not said:\n%s", r.stderr)
	}
	got := map[string]bench.Result{}
	for line := range strings.Lines(r.stdout) {
		var res bench.Result
		if err := json.Unmarshal([]byte(line), &res); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		got[res.Measure] = res
		if res.Ratio <= 0 || res.Ours <= 0 || res.Ceiling <= 0 || res.Replicas != 1 {
			t.Errorf("%s", line)
		}
	}
	want := []string{"burst", "cost", "drain", "drain-skip", "lateness_p50", "lateness_p99", "publish"}
	if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, want) {
		t.Errorf("measured %v, want %v", names, want)
	}
	if b := got["burst"]; b.Published <= 0 || b.Published > b.Ours || b.AtOnce <= 0 {
		t.Errorf("burst: all acked after %v ms, published after %v, by hand at once in %v", b.Ours, b.Published, b.AtOnce)
	}
	if c := got["cost"].Ceiling; c < 4 || c > 6 {
		t.Errorf("by hand a slot costs %.2f messages; want a publication, a claim, a completion, an ack and little more", c)
	}
	after := state()
	if !maps.EqualFunc(before, after, func(a, b jetstream.StreamState) bool { return a.LastSeq == b.LastSeq && a.Msgs == b.Msgs }) {
		t.Errorf("streams before %v, after %v", before, after)
	}
}

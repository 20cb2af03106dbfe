package main

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/lab/bench"
	"github.com/cronce-io/cronce/internal/lab/natstest"
)

func streams(t *testing.T, js jetstream.JetStream) (names []string) {
	t.Helper()
	list := js.StreamNames(t.Context())
	for name := range list.Name() {
		names = append(names, name)
	}
	if err := list.Err(); err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

// A namespace that is in use beside it stays as it is, to the last message.
func TestBenchMeasuresEverythingAndLeavesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	js := natstest.JetStream(t, natstest.Connect(t, f.url))
	state := func() map[string]jetstream.StreamState {
		all := map[string]jetstream.StreamState{}
		for _, name := range streams(t, js) {
			s, err := js.Stream(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			all[name] = s.CachedInfo().State
		}
		return all
	}
	before := state()
	r := cli{}.run(t, "bench", "--server", f.url, "--slots", "200", "--duration", "1s", "--producers", "2", "-o", "json")
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

func TestAnInterruptedBenchLeavesNothing(t *testing.T) {
	t.Parallel()
	s := natstest.Run(t)
	js := natstest.JetStream(t, natstest.Connect(t, s.ClientURL()))
	ctx, interrupt := context.WithCancel(t.Context())
	var stdout strings.Builder
	ended := make(chan int, 1)
	stderr, w := io.Pipe()
	go func() {
		ended <- execute(ctx, cli{}.app(&stdout, w), []string{"bench", "--server", s.ClientURL(), "--only", "drain,lateness", "--slots", "1000"})
		w.Close()
	}()
	go func() { _, _ = io.Copy(io.Discard, stderr) }()
	natstest.Eventually(t, "slots of its own", func() bool {
		return slices.ContainsFunc(streams(t, js), func(name string) bool { return strings.Contains(name, "_drain") })
	})
	interrupt()
	if code := <-ended; code != base.ExitFailed {
		t.Errorf("exit status %d, want %d", code, base.ExitFailed)
	}
	if left := streams(t, js); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestBenchRefusesWhatItCannotMeasure(t *testing.T) {
	t.Parallel()
	s := natstest.Run(t)
	js := natstest.JetStream(t, natstest.Connect(t, s.ClientURL()))
	if _, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "mine_hand"}); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]struct {
		code int
		says string
	}{
		"--only speed":                        {base.ExitUsage, `invalid --only "speed": want publish, drain,`},
		"--slots 5":                           {base.ExitUsage, "invalid --slots 5"},
		"--duration 1500ms":                   {base.ExitUsage, "invalid --duration 1.5s: want whole seconds"},
		"--producers 0":                       {base.ExitUsage, "invalid --producers 0"},
		"--replicas 9":                        {base.ExitUsage, "replicas 9: 1 to 5"},
		"--monitor localhost:8222":            {base.ExitUsage, "want a URL like http://127.0.0.1:8222"},
		"--monitor http://127.0.0.1:1":        {base.ExitFailed, "ask the monitoring port http://127.0.0.1:1"},
		"--namespace mine --only publish":     {base.ExitFailed, "stream KV_mine_hand exists"},
		"--server nats://127.0.0.1:1 --slots": {base.ExitUsage, "flag needs an argument"},
	} {
		r := cli{}.run(t, append([]string{"bench", "--server", s.ClientURL()}, strings.Fields(args)...)...)
		r.stderr = strings.TrimPrefix(r.stderr, "bench: looking at the server\n")
		r.oneError(t, want.code, want.says)
	}
	if left := streams(t, js); !slices.Equal(left, []string{"KV_mine_hand"}) {
		t.Errorf("streams afterwards: %v", left)
	}
}

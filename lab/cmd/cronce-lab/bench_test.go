package main

import (
	"context"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/lab/bench"
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
		"--rtt -1s":                           {base.ExitUsage, "round trip of -1s: want 0s to 10s"},
		"--bandwidth -1":                      {base.ExitUsage, "bandwidth of -1000000 bytes a second"},
		"--producers 0":                       {base.ExitUsage, "invalid --producers 0"},
		"--replicas 9":                        {base.ExitUsage, "replicas 9: 1 to 5"},
		"--monitor localhost:8222":            {base.ExitUsage, "want a URL like http://127.0.0.1:8222"},
		"--monitor http://127.0.0.1:1":        {base.ExitFailed, "ask the monitoring port http://127.0.0.1:1"},
		"--namespace mine --only publish":     {base.ExitFailed, "stream KV_mine_hand exists"},
		"--server nats://127.0.0.1:1 --slots": {base.ExitUsage, "flag needs an argument"},
	} {
		r := cli{}.run(t, append([]string{"bench", "--server", s.ClientURL()}, strings.Fields(args)...)...)
		r.stderr = strings.TrimPrefix(r.stderr, "bench: checking the server\n")
		r.oneError(t, want.code, want.says)
	}
	if left := streams(t, js); !slices.Equal(left, []string{"KV_mine_hand"}) {
		t.Errorf("streams afterwards: %v", left)
	}
}

// Both the fleet and the work by hand are as far away as the flag says.
func TestBenchMeasuresAtADistance(t *testing.T) {
	t.Parallel()
	s := natstest.Run(t)
	r := cli{}.run(t, "bench", "--server", s.ClientURL(), "--only", "lateness", "--duration", "1s", "--rtt", "200ms", "-o", "json")
	if r.code != base.ExitDone {
		t.Fatalf("%+v", r)
	}
	measured := 0
	for line := range strings.Lines(r.stdout) {
		var res bench.Result
		if err := json.Unmarshal([]byte(line), &res); err != nil {
			t.Fatal(err)
		}
		measured++
		// A slot is published, and then delivered: half a round trip each.
		if res.Ours < 200 || res.Ceiling < 200 {
			t.Errorf("%s: %v ms by the fleet, %v by hand, want 200 at least", res.Measure, res.Ours, res.Ceiling)
		}
	}
	if measured == 0 {
		t.Error("nothing was measured")
	}
}

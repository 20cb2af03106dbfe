package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/check/doctor"
	"github.com/cronce-io/cronce/internal/lab/proxy"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/lab/bench"
)

// benchFlags are the flags of "cronce-lab bench" besides the global ones.
type benchFlags struct {
	slots, producers, replicas int
	duration                   time.Duration
	only                       []string
	monitor                    string
	distanceFlags
}

// benchJobs is the rate, in slots per second, at which lateness and cost are measured.
const benchJobs = 100

const benchLong = `Bench measures what a fleet can do on your server. Beside each number it shows what the
same server does for the same operations written by hand, without a scheduler. Compare
by the ratio: 1 is as good as by hand, less is worse. Everything runs in this process and
in a new namespace, which bench removes at the end and on Ctrl-C; it touches nothing
else. It loads the server, so do not run it while others need the server.

  publish     --slots due in one second, until the last is stored
  drain       one worker, default settings, a handler that does nothing, overlap allow
  drain-skip  the same with overlap skip, four slots of each job
  burst       --slots due in one second, in one process that produces and works: from
              their instant until the last ack. By hand: as many messages, stored before,
              are drained; at_once_ms is the time if they are published meanwhile
  lateness    from a slot's instant to its handler's start, at 100 slots each second
  cost        messages into the server for each slot, at 100 slots each second, without
              the messages of an idle fleet, which are shown separately

The connections go through a proxy that puts your server 2 ms further away (--rtt), for
the fleet and for the work by hand.

Rates and the burst are the best of several runs; by hand, of several ways, some of them
with atomic batches. The fleet's connections count the messages; with --monitor the server
also counts those of all its clients.

With -o json, one line for each number:

  {"measure":"publish","ratio":0.93,"ours":88211.4,"ceiling":94530.2,"unit":"slots/s","slots":20000,
   "producers":1,"replicas":1,"sent_per_slot":1.01}
  {"measure":"burst","ratio":0.65,"ours":624.6,"ceiling":406.2,"unit":"ms","slots":20000,"producers":1,"replicas":1,
   "published_ms":188.5,"at_once_ms":508.1}
  {"measure":"lateness_p99","ratio":0.6,"ours":3.1,"ceiling":1.9,"unit":"ms","slots":1000,"producers":1,"replicas":1}
  {"measure":"cost","ratio":0.8,"ours":5.1,"ceiling":4.1,"unit":"messages/slot","slots":1000,"producers":1,
   "replicas":1,"server_per_slot":5.1,"idle_per_second":4.2}`

func newBenchCommand(a *base.App) *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure a fleet on your server, compared with the same work by hand",
		Long:  benchLong,
		Example: `  cronce-lab bench
  cronce-lab bench --only publish,cost --producers 10
  cronce-lab bench --only drain --rtt 50ms --bandwidth 10
  cronce-lab bench --server nats://nats.internal:4222 --replicas 3 --monitor http://nats.internal:8222 -o json`,
		Args: base.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("namespace") {
				a.Namespace = "bench_" + strings.ToLower(rand.Text()[:8])
			}
			if err := f.check(); err != nil {
				return base.Try(base.Usage(err), "cronce-lab bench --help")
			}
			return runBench(cmd.Context(), a, f)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&f.slots, "slots", 0, "slots to publish and to drain (default: what the server takes in a second, at most 20000)")
	flags.DurationVar(&f.duration, "duration", 10*time.Second, "how long lateness and cost are measured, in whole seconds")
	flags.IntVar(&f.producers, "producers", 1, "number of producers, each with its own connection")
	flags.IntVar(&f.replicas, "replicas", 0, "replicas of every stream (default 3 if the cluster has three servers, else 1)")
	flags.StringSliceVar(&f.only, "only", nil, "`measures` to run, of "+strings.Join(bench.Measures(), ", ")+" (default all)")
	f.distanceFlags.add(flags)
	flags.StringVar(&f.monitor, "monitor", "", "`URL` of the server's monitoring port, like http://127.0.0.1:8222")
	base.Complete(cmd, "only", bench.Measures()...)
	return cmd
}

// check validates the flags as far as that needs no server.
func (f benchFlags) check() error {
	if err := base.OneOf("--only", bench.Measures(), f.only...); err != nil {
		return err
	}
	switch {
	case f.slots != 0 && f.slots < 100:
		return fmt.Errorf("invalid --slots %d: must be at least 100 to measure anything", f.slots)
	case f.duration < time.Second || f.duration%time.Second != 0:
		return fmt.Errorf("invalid --duration %v: want whole seconds, at least 1s", f.duration)
	case f.producers < 1 || f.producers > 100:
		return fmt.Errorf("invalid --producers %d: want 1 to 100", f.producers)
	}
	if _, err := f.distance(); err != nil {
		return err
	}
	if f.monitor != "" {
		if err := base.CheckMonitor("http://127.0.0.1:8222", f.monitor); err != nil {
			return err
		}
	}
	return job.Settings{Replicas: f.replicas}.Validate()
}

func runBench(ctx context.Context, a *base.App, f benchFlags) error {
	distance, err := f.distance()
	if err != nil {
		return base.Usage(err)
	}
	if distance != (proxy.Distance{}) {
		between, err := proxy.New()
		if err != nil {
			return err
		}
		defer between.Close()
		between.SetDistance(distance)
		a.Dialer = proxy.Dialer(between.Address())
	}
	target, err := a.Target("bench")
	if err != nil {
		return err
	}
	cfg := bench.Config{
		Connect: func(ctx context.Context) (jetstream.JetStream, error) {
			nc, err := target.Connect(ctx)
			if err != nil {
				return nil, base.ConnectError(err, target)
			}
			return nc.JetStream()
		},
		Namespace: a.Namespace, Replicas: f.replicas, Slots: f.slots, Seconds: int(f.duration / time.Second), Jobs: benchJobs,
		Producers: f.producers, Only: f.only,
	}
	if f.monitor != "" {
		cfg.ServerMessages = func(ctx context.Context) (int64, error) { return inMessages(ctx, f.monitor) }
		if _, err := cfg.ServerMessages(ctx); err != nil {
			return err
		}
	}
	show := benchShow{App: a}
	cfg.Progress, cfg.Result = show.progress, show.result
	err = bench.Run(ctx, cfg)
	a.StatusLine("")
	return err
}

// inMessages reads from a server's monitoring how many messages clients have sent.
func inMessages(ctx context.Context, monitor string) (int64, error) {
	m, err := doctor.AskMonitor(ctx, monitor)
	return m.InMessages, base.Try(err, "the http_port of the server, or no --monitor")
}

// benchShow prints progress on stderr and results on stdout.
type benchShow struct {
	*base.App
	begun bool
}

func (s *benchShow) progress(doing string) {
	if !s.StatusLine("bench: " + doing) {
		fmt.Fprintln(s.Stderr, "bench:", doing)
	}
}

func (s *benchShow) result(r bench.Result) error {
	if s.Output == base.OutputJSON {
		return s.PrintJSON(r)
	}
	s.StatusLine("")
	// Results come one by one, so the columns have a fixed width.
	const row = "%-6s %-14s %14s %14s  %-14s %s\n"
	if !s.begun {
		s.begun = true
		fmt.Fprintf(s.Stdout, row, "RATIO", "WHAT", "CRONCE", "BY HAND", "", "")
	}
	var more []string
	if r.Producers > 0 {
		more = append(more, base.Plural(r.Producers, "producer"))
	}
	more = append(more, base.Plural(r.Replicas, "replica"))
	if r.Sent > 0 {
		more = append(more, fmt.Sprintf("%.2f messages sent per slot", r.Sent))
	}
	if r.Published > 0 {
		more = append(more, fmt.Sprintf("published after %s ms", figure(r.Published)))
	}
	if r.AtOnce > 0 {
		more = append(more, fmt.Sprintf("published and drained by hand at once: %s ms", figure(r.AtOnce)))
	}
	if r.Server > 0 {
		more = append(more, fmt.Sprintf("%.2f by the server's count", r.Server))
	}
	if r.Idle > 0 {
		more = append(more, fmt.Sprintf("idle %.1f a second", r.Idle))
	}
	_, err := fmt.Fprintf(s.Stdout, row, fmt.Sprintf("%.2f", r.Ratio), r.Measure, figure(r.Ours), figure(r.Ceiling), r.Unit, strings.Join(more, ", "))
	return err
}

// figure formats a number: no decimals if it is large.
func figure(x float64) string {
	if x >= 1000 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.2f", x)
}

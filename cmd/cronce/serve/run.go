// Package serve holds the commands that run until they are stopped: "cronce run", a node
// of the fleet, "cronce ui", the dashboard, and "cronce server", the embedded NATS server.
package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/cronce-io/cronce"
	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/consumer"
	"github.com/cronce-io/cronce/internal/action/guard"
	"github.com/cronce-io/cronce/internal/action/httpaction"
	"github.com/cronce-io/cronce/internal/action/ready"
	"github.com/cronce-io/cronce/internal/api"
	"github.com/cronce-io/cronce/internal/attach"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/fleet/node"
	"github.com/cronce-io/cronce/internal/fleet/replica"
	"github.com/cronce-io/cronce/internal/tracing"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
	"github.com/cronce-io/cronce/metrics"
)

// runFlags are the flags of "cronce run" besides the global ones.
type runFlags struct {
	file              string
	queues            []string
	concurrency       concurrency
	lease             base.Duration
	grace             time.Duration
	priority          int
	node              string
	noProduce, noWork bool
	exitOnStuck       bool
	clockOffset       time.Duration
	maxClockOffset    time.Duration
	metricsAddr       string
	http              httpFlags
}

const runLong = `Run starts one node of the fleet. It publishes the due slots of every job in the
registry, and runs the slots of the jobs in its file. You can start it any number of
times, on any number of machines, with the same file: each slot runs once.

With no --server, no NATS_URL and no selected NATS context it joins the server on
127.0.0.1:4222, or embeds one there with its files under --store. When the
process that embeds the server dies, another one takes over. If you name a server, run
waits for it, at the start and later.

Without -f it only publishes: it is a producer for the jobs in the registry.

To export traces, set OTEL_EXPORTER_OTLP_ENDPOINT to an OpenTelemetry collector, for
example http://127.0.0.1:4318.

SIGHUP makes it read the file again and, without --queue, work on the queues of its jobs.
Only the processes that read a file run its commands: the registry holds a job's schedule
and payload, and never a command.

Each node is a NATS service, which "nats micro ls" and "nats micro info cronce" show. If
the node's login has an operator's permissions (see cronce auth), other programs can
request from it what "cronce job" and "cronce slot" do.

` + httpAuthHelp + `

On TERM or Ctrl-C it takes no more slots and waits up to --grace for running ones. Then it
ends the actions that still run, each of which has spent an attempt and is retried if it
has one left, and ends with status 0. A second signal ends it at once, with status 130.
With CRONCE_DISABLED=1 it does nothing and waits.`

func NewRunCommand(a *base.App) *cobra.Command {
	f := runFlags{concurrency: concurrency{each: consumer.DefaultConcurrency}, http: httpFlags{name: "http"}}
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the jobs of a file, as one node of the fleet",
		Long:  runLong,
		Example: `  cronce run -f jobs.yaml
  cronce run -f jobs.yaml --server nats://nats.internal:4222 --queue reports --concurrency 4
  cronce run -f jobs.yaml --concurrency 16 --concurrency reports=4`,
		Args: base.Arguments(cobra.NoArgs),
		RunE: base.Endless(func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return base.Usage(err)
			}
			return runNode(cmd.Context(), a, f)
		}),
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.file, "file", "f", "", "job `file` (default: none, publish only)")
	flags.StringSliceVar(&f.queues, "queue", nil, "work only on this `queue`; repeatable (default: every queue of the file)")
	flags.Var(&f.concurrency, "concurrency", "how many slots run at once in this process: `N` for each queue, QUEUE=N for one; repeatable")
	flags.IntVar(&f.priority, "priority", 0, "0 to 9: workers of a higher number stand by while workers of a lower number are alive and have capacity")
	flags.Var(&f.lease, "lease", "how long a silent node keeps its claims; a setting of the namespace (default: the stored one, else 20s)")
	flags.DurationVar(&f.grace, "grace", consumer.DefaultGrace, "how long running slots may continue after TERM")
	flags.StringVar(&f.node, "node", "", "`name` to use instead of the host name in the node's name")
	flags.BoolVar(&f.noProduce, "no-produce", false, "do not publish due slots; another node must")
	flags.BoolVar(&f.noWork, "no-work", false, "do not run slots")
	flags.BoolVar(&f.exitOnStuck, "exit-on-stuck", false, "end with status 1 if an action still runs more than --grace (at least 5s) after its timeout, so that a supervisor restarts the process")
	flags.StringVar(&f.metricsAddr, "metrics-addr", "", f.http.metricsAddrHelp())
	flags.StringVar(&f.http.addr, "http", "", "serve the dashboard and the HTTP API on this `address`, as in 127.0.0.1:8080 (default: nowhere)")
	f.http.add(flags)
	flags.DurationVar(&f.maxClockOffset, "max-clock-offset", replica.DefaultMaxClockOffset, "publish nothing while this node's clock differs more from the broker's")
	flags.DurationVar(&f.clockOffset, "clock-offset", 0, "shift every reading of the local clock (for tests)")
	return cmd
}

// check validates the flags as far as that needs no file and no server.
func (f runFlags) check() error {
	if err := codec.ValidateName("queue", f.queues...); err != nil {
		return err
	}
	switch {
	case f.noProduce && (f.noWork || f.file == ""):
		return errors.New("nothing to do: with --no-produce a node must work, so it needs -f FILE and no --no-work")
	case len(f.queues) > 0 && f.file == "":
		return errors.New("--queue needs -f FILE: a node runs only jobs in its file")
	case f.priority < 0 || f.priority > exchange.MaxPriority:
		return fmt.Errorf("invalid --priority %d: must be 0 (first) to %d", f.priority, exchange.MaxPriority)
	case f.maxClockOffset <= 0:
		return fmt.Errorf("invalid --max-clock-offset %v: must be positive", f.maxClockOffset)
	case f.grace < 0:
		return fmt.Errorf("invalid --grace %v: must not be negative", f.grace)
	}
	if f.node != "" {
		if err := codec.ValidateName("node", f.node); err != nil {
			return err
		}
	}
	if err := checkAddr("metrics-addr", f.metricsAddr, "9464"); err != nil {
		return err
	}
	return job.Settings{Lease: time.Duration(f.lease)}.Validate()
}

func runNode(ctx context.Context, a *base.App, f runFlags) error {
	jobs, err := loadJobs(ctx, a, f)
	if err != nil {
		return err
	}
	var h health
	m := metrics.New()
	pages, stopServing, err := f.http.serve(a, f.metricsAddr, &h, m)
	if err != nil {
		return err
	}
	defer stopServing()
	systemd, stopReporting := supervise(ctx, a, &h)
	defer stopReporting()
	hangups := make(chan os.Signal, 1) // registered early: SIGHUP must not end the process
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	if isDisabled(a.Getenv) {
		h.set(func() ([]replica.Check, error) { return []replica.Check{{Name: "disabled"}}, nil })
		a.Log.Info("disabled by CRONCE_DISABLED; waiting for a signal")
		<-ctx.Done()
		return nil
	}
	provider, flush, err := a.Tracing(ctx)
	if err != nil {
		return err
	}
	defer flush()
	if provider != nil {
		a.Log.Info("exporting traces", "to", base.Collector(a.Getenv))
	}
	tracer := tracing.New(provider, a.Namespace, base.Version())
	nc, leave, err := a.Connect(ctx, "run", true)
	if err != nil {
		return err
	}
	defer leave()
	defer pages.stop() // before the connection is closed
	js, err := nc.JetStream()
	if err != nil {
		return err
	}
	store, err := kv.Open(ctx, js, kv.Options{Namespace: a.Namespace, Want: job.Settings{Lease: time.Duration(f.lease)}, Logger: a.Log, Trace: tracer.Publish})
	if err != nil {
		return err
	}
	go func() { // the node would wait for its registry without an end
		if base.WithoutDeliveries(ctx, js, a.Namespace) {
			a.Log.Error("node cannot work", "error", base.ErrNoDeliveries, "try", base.DeliveriesHint)
		}
	}()
	if err := store.CheckPriority(f.priority); err != nil {
		return fmt.Errorf("--priority: %w", err)
	}
	margin := node.Margin(store.Settings().Lease)
	g := guard.New(guard.Config{KillAfter: margin / 2})
	defer g.Close()
	transport := httpaction.NewTransport()
	defer transport.CloseIdleConnections()
	services := ready.New(a.Log)
	if err := jobs.equip(shared{g, transport, httpaction.Fresh(transport), nc.Conn, a.Getenv}, services, jobs.queues(f)); err != nil {
		return err
	}
	if jobs.runsPrograms() {
		if err := g.Start(); err != nil { // now, so that the first slot is not delayed
			return err
		}
	}
	for _, q := range slices.Concat(f.queues, f.concurrency.queues()) {
		if !slices.Contains(jobs.allQueues(), q) {
			a.Log.Warn("no job of the file is in this queue", "queue", q, "file_queues", jobs.allQueues())
		}
	}
	cfg := f.replica(a, nc.Conn, store, jobs, g)
	if f.metricsAddr != "" {
		cfg.Observer = m
	}
	cfg.Tracer = tracer
	r := replica.New(cfg)
	m.Follow(func() cronce.Stats { return cronce.Stats(r.Stats()) })
	h.set(healthOf(ctx, r))
	pages.open(client.Attach(attach.Of(nc.Conn, store, attach.Options{Operator: a.Operator(), Now: a.Now, Logger: a.Log})))
	a.Log.Info("starting", "jobs", len(jobs.jobs()), "queues", jobs.queues(f), "server", nc.ConnectedAddr(), "namespace", a.Namespace)
	jobs.warnOfShadows(a)
	stop := reloadOn(ctx, a, hangups, func() error {
		return systemd.reload(func() error { return reload(ctx, a, f, jobs, r) })
	}, f.file)
	defer stop()
	stopAsking := background(ctx, services.Run)
	defer stopAsking()
	return r.Run(ctx)
}

// background runs f in a goroutine. stop cancels its context and waits for it.
func background(ctx context.Context, f func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { defer close(ended); f(ctx) }()
	return func() { cancel(); <-ended }
}

func (f runFlags) replica(a *base.App, nc *nats.Conn, store *kv.Store, jobs *handlers, g *guard.Guard) replica.Config {
	return replica.Config{
		Store: store, Jobs: jobs.jobs(), Owner: "file", Handler: jobs.handler, Handlers: jobs.names, Ready: jobs.services.Ready,
		Queues: jobs.queues(f), Produce: !f.noProduce, Concurrency: f.concurrency.each, QueueConcurrency: f.concurrency.byQueue, Priority: f.priority, Grace: cmp.Or(f.grace, -1), Host: f.node, Serve: api.For(nc, store, a.Now, a.Log),
		EndOnStuck: f.exitOnStuck, ClockShift: f.clockOffset, MaxClockOffset: f.maxClockOffset, Renewed: g.Renew, Loaded: limitMemory(a.Getenv), Version: base.Version(), Logger: a.Log,
	}
}

// isDisabled reports whether CRONCE_DISABLED in the environment tells this process to do nothing,
// for example while a migration runs. Every value but "0", "false", "no" and "off" disables it, so
// that a misspelled value is on the safe side.
func isDisabled(getenv func(string) string) bool {
	switch strings.ToLower(strings.TrimSpace(getenv("CRONCE_DISABLED"))) {
	case "", "0", "false", "no", "off":
		return false
	}
	return true
}

// concurrency is the value of --concurrency: N for each queue, QUEUE=N for one.
type concurrency struct {
	each    int
	byQueue map[string]int
}

// Set adds the value of one use of the flag.
func (c *concurrency) Set(text string) error {
	queue, number, named := strings.Cut(text, "=")
	if !named {
		number = text
	} else if err := codec.ValidateName("queue", queue); err != nil {
		return err
	}
	n, err := strconv.Atoi(number)
	switch {
	case err != nil:
		return errors.New("want a number such as 16, or QUEUE=N such as reports=4")
	case n < 1:
		return errors.New("must be at least 1")
	case !named:
		c.each = n
		return nil
	case c.byQueue == nil:
		c.byQueue = map[string]int{}
	}
	c.byQueue[queue] = n
	return nil
}

// queues returns the queues that have a number of their own.
func (c *concurrency) queues() []string { return slices.Sorted(maps.Keys(c.byQueue)) }

func (c *concurrency) String() string { return strconv.Itoa(c.each) }

// Type is not shown: the usage of the flag names its values.
func (c *concurrency) Type() string { return "concurrency" }

// GC percentages below the default of 100. gcLoading holds while the registry is loaded, so that less
// garbage lies between the values that stay. gcLargeHeap holds afterwards if the heap is larger than
// largeHeap, because the garbage may grow to this percentage of the heap.
const (
	gcLoading   = 50
	gcLargeHeap = 25
	largeHeap   = 128 << 20 // bytes
)

// limitMemory limits the memory of a process with a large registry, unless GOGC is set. Call
// loaded when the registry has been read.
func limitMemory(getenv func(string) string) (loaded func()) {
	if getenv("GOGC") != "" {
		return debug.FreeOSMemory
	}
	before := debug.SetGCPercent(gcLoading)
	return func() {
		debug.FreeOSMemory()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		if m.HeapAlloc > largeHeap {
			before = gcLargeHeap
		}
		debug.SetGCPercent(before)
	}
}

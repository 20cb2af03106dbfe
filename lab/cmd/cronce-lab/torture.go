package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/natsconn/connect"
	"github.com/cronce-io/cronce/internal/natsconn/embed"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/lab/conformance"
	"github.com/cronce-io/cronce/lab/torture"
)

// tortureFlags are the flags of "cronce-lab torture" besides the global ones.
type tortureFlags struct {
	torture.Shape
	distanceFlags
	keep string
	node string
}

const tortureLong = `Torture checks whether the promise holds while everything breaks. It starts a fleet of
its own, workers and producers as processes, with jobs of every policy, and plans faults
from a seed: it kills, terminates, freezes and wakes processes, gives them
wrong clocks, cuts their connections, slows them down, loses, delays (0.5 to 5 s) or
holds back what the servers answer, stops reading sockets that stay open, and cuts off
single writes before and after they land. It sends HUP while jobs come and go in a
process's file, fills streams, and deletes messages of running slots. Handlers write
every start and end into a record outside the broker. When the time is over it lets the
fleet settle. Then it checks that record, every write that the broker stored, and the
final state against the promise: one outcome for every slot that should exist, one owner
at a time, nothing early, nothing lost, nothing without a claim.

The processes reach their servers through proxies, which put them 2 ms away (--rtt), as in
any network.

Without --server and --context it starts three servers as a cluster, and kills and
restarts those too, one at a time (--servers 1: a single one). They sync each write, and
take only small messages (16 to 64 KiB, by the seed), so that some records must be cut.
With --server or --context it tortures its fleet against your servers, in a namespace of
its own, which it removes at the end. It touches nothing else and kills none of your
processes. It ignores NATS_URL and the selected context of the nats CLI: choose the
server explicitly.

With --node-cmd every second process of the fleet is a client that you wrote, in any
language. docs/conformance.md describes its environment, and the record of starts and
ends that it writes. The faults and the checks are the same, except for the HUP.

The same seed plans the same faults. Their effect also depends on the machine.

Status 3 means that a promise was broken, with the evidence, or that the run is
inconclusive, because no slot was taken over, no late completion was refused, or no
message was redelivered: run it for longer.

With -o json, one line for each violation, and a last line for the run, the only line
with ok:

  {"rule":"two at once","slot":"long:2026-11-21T07:00:04Z","detail":"...","evidence":["record: ..."]}
  {"ok":true,"conclusive":true,"seed":7,"duration":"5m0s","namespace":"torture_x","servers":3,
   "workers":4,"producers":2,"lease":"20s","faults":{"kill":12,"sleep":6,...},"slots":1480,
   "outcomes":{"succeeded":1302,...},"attempts":1624,"takeovers":31,"refused":12,"fenced":9,
   "redelivered":410,"late":57,"batched":940,"worst_late_ms":75012.1,"worst_slot":"...",
   "violations":0}`

func newTortureCommand(a *base.App) *cobra.Command {
	var f tortureFlags
	cmd := &cobra.Command{
		Use:   "torture",
		Short: "Break a fleet in every way and check that the promise holds",
		Long:  tortureLong,
		Example: `  cronce-lab torture
  cronce-lab torture --duration 5m --seed 42
  cronce-lab torture --rtt 50ms --bandwidth 10
  cronce-lab torture --node-cmd 'node clients/node/peer.js' --duration 5m
  cronce-lab torture --server nats://nats.internal:4222 --duration 10m --workers 8`,
		Args: base.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("seed") {
				f.Seed = randomSeed()
			}
			if !cmd.Flags().Changed("namespace") {
				a.Namespace = "torture_" + strings.ToLower(rand.Text()[:8])
			}
			given := cmd.Flags().Changed
			if given("servers") && !given("server") && !given("context") {
				// A flag overrides the environment.
				if a.Server+a.Context != "" {
					a.Log.Info("--servers is set: ignoring the server in the environment", "server", a.Server, "context", a.Context)
				}
				a.Server, a.Context = "", ""
			}
			if err := completeTorture(a, &f, given); err != nil {
				return base.Try(base.Usage(err), "cronce-lab torture --help")
			}
			return runTorture(cmd.Context(), a, f)
		},
	}
	flags := cmd.Flags()
	flags.DurationVar(&f.Duration, "duration", time.Minute, "how long faults happen")
	flags.Uint64Var(&f.Seed, "seed", 0, "plan the faults of this `number` (default: a random one, which is printed)")
	flags.IntVar(&f.Workers, "workers", 4, "processes that run slots; every other one publishes them too")
	flags.IntVar(&f.Producers, "producers", 2, "processes that only publish slots")
	flags.IntVar(&f.Servers, "servers", 3, "start 1 or 3 servers and torture them too; not with --server or --context")
	flags.DurationVar(&f.Lease, "lease", 0, "the namespace's lease (default 20s, longer than a failover; 3s with --servers 1)")
	f.distanceFlags.add(flags)
	flags.StringVar(&f.node, "node-cmd", "", "`command` line of a client that you wrote: every second process of the fleet is one")
	flags.StringVar(&f.keep, "keep", "", "keep the record and the logs of all processes in this new `dir`")
	cmd.AddCommand(newTortureNodeCommand(a), newTortureServerCommand(a))
	return cmd
}

// completeTorture sets defaults and validates the flags. given reports whether a flag was given.
func completeTorture(a *base.App, f *tortureFlags, given func(flag string) bool) error {
	if err := torture.Supported(); err != nil {
		return err
	}
	external, serversGiven := a.Server != "" || a.Context != "", given("servers")
	if f.node != "" && !serversGiven && !external {
		f.Servers = 1
	}
	switch {
	case f.node != "" && (external || serversGiven && f.Servers != 1):
		return errors.New("--node-cmd needs --servers 1: from a cluster your client learns addresses that go around the faults")
	case external && serversGiven:
		return errors.New("--servers starts new servers: it excludes --server and --context")
	case external:
		f.Servers = 0
	case f.Servers != 1 && f.Servers != 3:
		return fmt.Errorf("invalid --servers %d: must be 1 or 3", f.Servers)
	}
	if _, err := f.distance(); err != nil {
		return err
	}
	if !given("lease") {
		f.Lease = job.DefaultLease
		if f.Servers == 1 {
			f.Lease = 3 * time.Second
		}
	}
	switch least := 2*f.Lease + 10*time.Second; {
	case f.Duration < least:
		return fmt.Errorf("invalid --duration %v: with a lease of %v it must be at least %v", f.Duration, f.Lease, least)
	case f.Workers < 2:
		return fmt.Errorf("invalid --workers %d: must be at least 2, so that one can take over from another", f.Workers)
	case f.Producers < 0:
		return fmt.Errorf("invalid --producers %d: must not be negative", f.Producers)
	case f.Lease < 2*time.Second:
		return fmt.Errorf("invalid --lease %v: must be at least 2s, so that a busy machine is not declared dead", f.Lease)
	}
	return nil
}

// nodeCommand returns a function that makes the command of --node-cmd, or nil without that flag.
func (f tortureFlags) nodeCommand() func() *exec.Cmd {
	if f.node == "" {
		return nil
	}
	return func() *exec.Cmd { return conformance.Shell(context.Background(), f.node) }
}

func randomSeed() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never fails
	return binary.LittleEndian.Uint64(b[:]) >> 33
}

func runTorture(ctx context.Context, a *base.App, f tortureFlags) error {
	distance, err := f.distance()
	if err != nil {
		return base.Usage(err)
	}
	dir, clean, err := f.folder()
	if err != nil {
		return err
	}
	defer clean()
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	if a.Domain != "" {
		return base.Usage(errors.New("torture does not support JetStream domains: leave out --js-domain and connect to the server of the streams"))
	}
	show := &progress{a: a, f: f}
	show.begin()
	inbox := a.Inbox // or that of the context; the processes start after the connection is made
	report, err := torture.Run(ctx, torture.Config{
		Shape: f.Shape, Distance: distance,
		Namespace: a.Namespace, Dir: dir,
		Command: func(role string) *exec.Cmd {
			args := []string{"torture", role, "--log-format", "json", "--log-level", "debug", "--inbox-prefix", inbox}
			// Pass on the other login flags; passwords are in the environment.
			for flag, value := range map[string]string{
				"nkey": a.Login.NKey, "user": a.Login.User, "tlscert": a.Login.Cert, "tlskey": a.Login.Key, "tlsca": a.Login.CA,
			} {
				if value != "" {
					args = append(args, "--"+flag, value)
				}
			}
			return exec.Command(exe, args...)
		},
		ForeignCommand: f.nodeCommand(),
		Connect: func(ctx context.Context) (*nats.Conn, error) {
			nc, err := connectThrough(ctx, a, "torture", nil)
			if err == nil {
				inbox = nc.Opts.InboxPrefix
			}
			return nc, err
		},
		Server: a.Server, Context: a.Context, Creds: a.Login.Creds,
		Progress: show.report, Logger: a.Log,
	})
	a.StatusLine("")
	if err != nil {
		return err
	}
	return printTorture(a, f, report)
}

// folder returns the directory of the record, and a function that removes it if it is temporary.
func (f tortureFlags) folder() (dir string, clean func(), err error) {
	if f.keep != "" {
		if err := os.Mkdir(f.keep, 0o700); err != nil {
			return "", nil, base.Usage(fmt.Errorf("--keep wants a new directory: %w", err))
		}
		return f.keep, func() {}, nil
	}
	dir, err = os.MkdirTemp("", "cronce-torture-")
	return dir, func() { os.RemoveAll(dir) }, err
}

// connectThrough connects with a dialer; nil is the default one. It ignores servers that
// were not chosen explicitly.
func connectThrough(ctx context.Context, a *base.App, as string, d nats.CustomDialer) (*nats.Conn, error) {
	target, err := connect.Resolve(connect.Config{
		Server: a.Server, Context: a.Context, Login: a.Login, Local: a.Local, Inbox: a.Inbox, OwnInbox: a.OwnInbox, Name: as, Getenv: a.Getenv, Logger: a.Log, Dialer: d,
	})
	if err != nil {
		return nil, base.Usage(err)
	}
	nc, err := target.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return nc.Conn, nil
}

// newTortureNodeCommand returns the command of one process of the torture fleet.
func newTortureNodeCommand(a *base.App) *cobra.Command {
	return newChildCommand(a, torture.NodeRole, func(ctx context.Context, spec torture.NodeSpec) error {
		a.Server, a.Context, a.Login.Creds = spec.Server, spec.Context, spec.Creds
		return torture.RunNode(ctx, spec, func(ctx context.Context, d nats.CustomDialer) (*nats.Conn, error) {
			return connectThrough(ctx, a, spec.Process, d)
		}, a.Log)
	})
}

// newTortureServerCommand returns the command of one server that torture starts.
func newTortureServerCommand(a *base.App) *cobra.Command {
	return newChildCommand(a, torture.ServerRole, func(ctx context.Context, spec torture.ServerSpec) error {
		cfg := embed.Config{Listen: spec.Listen, Store: spec.Store, MaxPayload: spec.MaxPayload, Logger: a.Log}
		if spec.Route != "" {
			cfg.Peer = &embed.Peer{Name: spec.Name, Listen: spec.Route, Routes: spec.Routes}
		}
		srv, err := embed.Start(ctx, cfg)
		if err != nil {
			return err
		}
		<-ctx.Done()
		return srv.Close()
	})
}

// newChildCommand returns the command of a process that cronce-lab torture starts. The first line of
// stdin is its specification. The process exits when stdin ends, because its parent is then gone.
func newChildCommand[Spec any](a *base.App, role string, run func(context.Context, Spec) error) *cobra.Command {
	return &cobra.Command{
		Use: role, Hidden: true, Args: base.Arguments(cobra.NoArgs),
		Short: "Be a " + role + " of cronce-lab torture, which starts it",
		Long:  "Cronce torture starts this process and writes its specification to stdin.",
		RunE: base.Endless(func(cmd *cobra.Command, _ []string) error {
			in := bufio.NewReader(a.Stdin)
			line, err := in.ReadBytes('\n')
			var spec Spec
			if err == nil {
				err = json.Unmarshal(line, &spec)
			}
			if err != nil {
				return base.Usage(fmt.Errorf("only cronce-lab torture starts this command: %w", err))
			}
			go func() {
				_, _ = io.Copy(io.Discard, in)
				os.Exit(base.ExitFailed)
			}()
			return run(cmd.Context(), spec)
		}),
	}
}

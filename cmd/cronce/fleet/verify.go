package fleet

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/check/verify"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

type verifyFlags struct {
	from, to string
	jobs     []string
	repair   bool

	first, last time.Time // from and to, parsed; zero: not given
}

func NewVerifyCommand(a *base.App) *cobra.Command {
	var f verifyFlags
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check that every slot has exactly one outcome",
		Long: `Verify computes which slots should exist, from the job definitions over time, and
compares them with the ledger. If it finds problems, the status is 3:

  missing     no record, no message, and no range of missed slots covers it
  no_outcome  it cannot proceed (its message is gone, and no live worker runs it), or
              it should have proceeded more than 2m ago
  doubled     attempts overlap, an attempt started after a success, or an event
              reports another outcome than the ledger
  early       it started before it was due, by its worker's clock or the broker's

If a job comes after other jobs, it should have a slot wherever all of those succeeded
more than 2m0s ago.

Late starts are only counted. Verify does not judge what it cannot know, and lists it:
slots that fell due less than 5s ago, slots that the ledger may have forgotten, slots
due while their job is paused, jobs that are not in the registry, and the time before
the first known schedule of a job. It also reports if nodes found that the ledger went
back, because it was purged or restored from an older copy. The slots that ran before
that are then not known.

--repair offers missing slots again, and slots that have neither an outcome nor a
message. Workers treat them like every slot, by their record: a slot that lost its
record runs again. If the job's catch_up policy is none, or its within has passed, the
slot is recorded as missed. Slots that are older than the horizon, or not published yet,
are left alone. The status is still 3: verify again to see the results. Several
processes may repair at once: within the duplicate window the server folds the copies.

With -o json, one line for each slot with a problem. state is the state of its record,
or pending; repair is offered or already_offered; beyond_repair is why it is neither:

  {"problem":"missing","id":"report:2026-11-21T07:00:00Z","job":"report","slot":"2026-11-21T07:00:00Z",
   "due":"2026-11-21T07:00:00Z","detail":"neither a record nor a message","repair":"offered"}
  {"problem":"no_outcome","id":"report:2026-11-21T08:00:00Z","job":"report","slot":"2026-11-21T08:00:00Z",
   "due":"2026-11-21T08:00:00Z","state":"pending","detail":"it has been waiting for more than 2m0s, ...",
   "beyond_repair":"its message waits: ..."}

and a last line with the sum, the only line with ok. slots counts the slots that should
exist and were judged; beside counts the outcomes of slots that are in no schedule
(triggered, backfilled, of deleted jobs). late_ms is from due to start; each bucket
counts up to le_ms and above the bucket before; the last has no bound:

  {"ok":false,"from":"2026-11-20T12:00:00Z","to":"2026-11-21T12:00:00Z","jobs":1,"slots":24,
   "outcomes":{"succeeded":22},"in_progress":0,"beside":0,"missing":1,"no_outcome":1,"doubled":0,"early":0,
   "offered":1,"beyond_repair":1,"late_ms":{"slots":22,"p50":12.3,"p99":40.2,"max":41.5,
   "buckets":[{"le_ms":10,"slots":3},{"le_ms":50,"slots":19},...,{"slots":0}]},
   "not_judged":[{"reason":"what falls due while it is paused","jobs":1,"names":["backup"]}]}

If the ledger went back, the sum has "rewound":{"time":...,"lost":{"slot":...,"revision":...,"time":...},"found":...}.`,
		Example: `  cronce verify
  cronce verify --from 2026-11-14T00:00:00Z --to 2026-11-21T00:00:00Z --job report
  cronce verify -o json | jq -r 'select(.problem == "missing") | .id'
  cronce verify --repair`,
		Args: base.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return base.Try(base.Usage(err), "cronce verify --help")
			}
			open := a.Read
			if f.repair {
				open = a.Publish
			}
			return open(cmd.Context(), "verify", func(ctx context.Context, r base.Reader) error {
				v := verifier{Reader: r, flags: f, node: "verify-" + rand.Text()[:8], began: time.Now()}
				return v.run(ctx)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.from, "from", "", "judge slots from this RFC 3339 `time` on (default 24h before --to)")
	flags.StringVar(&f.to, "to", "", "judge slots before this RFC 3339 `time` (default: now, by the broker's clock)")
	flags.StringSliceVar(&f.jobs, "job", nil, "judge only this `job`; repeatable")
	flags.BoolVar(&f.repair, "repair", false, "offer missing and stuck slots again")
	return cmd
}

func (f *verifyFlags) check() (err error) {
	for _, name := range f.jobs {
		if err := codec.ValidateName("job", name); err != nil {
			return err
		}
	}
	if f.from != "" {
		if f.first, err = base.ParseTime("--from", f.from); err != nil {
			return err
		}
	}
	if f.to != "" {
		if f.last, err = base.ParseTime("--to", f.to); err != nil {
			return err
		}
	}
	if f.from != "" && f.to != "" && !f.last.After(f.first) {
		return fmt.Errorf("invalid --to %s: must be after --from %s", f.to, f.from)
	}
	return nil
}

// verifier is one run of the command.
type verifier struct {
	base.Reader
	flags verifyFlags
	node  string // node name of the messages that it offers
	check *verify.Check
	from  time.Time

	rewound core.Rewound // since from

	read          int // values so far
	began, spoken time.Time
}

func (v *verifier) run(ctx context.Context) error {
	if err := v.begin(ctx); err != nil {
		return err
	}
	// Read the stream before the ledger: if a slot runs in between, its record shows it.
	for _, pass := range []func(context.Context) error{v.lookForRewind, v.told, v.waiting, v.recorded, v.lookAgain} {
		if err := pass(ctx); err != nil {
			return err
		}
	}
	return v.print(ctx)
}

// begin computes what should exist.
func (v *verifier) begin(ctx context.Context) error {
	cfg, err := v.config(ctx)
	if err != nil {
		return err
	}
	entries, err := v.Jobs().List(ctx)
	if err != nil && !v.Unreadable(err) {
		return err
	}
	v.Alive()
	for _, name := range v.flags.jobs {
		if !slices.ContainsFunc(entries, func(e core.Entry) bool { return e.Job.Name == name }) {
			return base.Try(fmt.Errorf("job %q: %w in the registry", name, job.ErrNotFound), "cronce job ls")
		}
	}
	v.check, v.from = verify.New(cfg, entries), cfg.From
	return nil
}

// config reads the inputs of the check. It reads the broker's time first, so that
// everything else is newer.
func (v *verifier) config(ctx context.Context) (verify.Config, error) {
	cfg := verify.Config{From: v.flags.first, To: v.flags.last, Settings: v.Settings(), Jobs: v.flags.jobs, Progress: v.progress}
	var err error
	if cfg.Now, err = v.Time(ctx); err != nil {
		return cfg, err
	}
	if cfg.To.IsZero() {
		cfg.To = cfg.Now
	}
	if cfg.From.IsZero() {
		cfg.From = cfg.To.Add(-24 * time.Hour)
	}
	if !cfg.To.After(cfg.From) {
		return cfg, base.Usage(fmt.Errorf("invalid --from %s: must not be in the future without --to", v.flags.from))
	}
	if cfg.Watermark, _, err = v.Watermark().Read(ctx); err != nil && !errors.Is(err, job.ErrNotFound) {
		return cfg, err
	}
	v.Alive()
	cfg.Nodes, err = v.Nodes().List(ctx)
	return cfg, err
}

// progress restarts the timeout of the command, and logs every 3 s that it still works.
func (v *verifier) progress() {
	v.Alive()
	const every = 3 * time.Second
	if now := time.Now(); now.Sub(v.began) > every && now.Sub(v.spoken) > every {
		v.spoken = now
		v.Log.Info("still verifying", "read", v.read, "for", now.Sub(v.began).Round(time.Second).String())
	}
}

// skew allows for records and events that a slightly wrong clock stamped before their
// slots.
const skew = time.Minute

func (v *verifier) told(ctx context.Context) error {
	for e, err := range v.Events(ctx, kv.EventFilter{Since: v.from.Add(-skew)}) {
		if fatal := v.taken(err); fatal != nil {
			return fatal
		}
		if err == nil {
			v.check.Told(e)
		}
	}
	return nil
}

func (v *verifier) waiting(ctx context.Context) error {
	for w, err := range v.Waiting(ctx, kv.WaitingFilter{Job: v.only(), Fired: true}) {
		if fatal := v.taken(err); fatal != nil {
			return fatal
		}
		if err == nil && !w.Stranded {
			v.check.Waiting(w.Message, w.Published)
		}
	}
	return nil
}

func (v *verifier) recorded(ctx context.Context) error {
	for e, err := range v.Ledger().List(ctx, kv.ListFilter{Job: v.only(), Since: v.from.Add(-skew)}) {
		if fatal := v.taken(err); fatal != nil {
			return fatal
		}
		if err == nil {
			v.check.Record(e.Record, e.Time)
		}
	}
	return nil
}

// taken counts a value. It returns the error if that ends the pass.
func (v *verifier) taken(err error) error {
	v.read++
	v.progress()
	if err != nil && !v.Unreadable(err) {
		return err
	}
	return nil
}

// only returns the one job to judge, so that the broker filters by it. It is empty if
// there are several, or if the job depends on others.
func (v *verifier) only() string {
	if len(v.flags.jobs) == 1 && v.check.Alone(v.flags.jobs[0]) {
		return v.flags.jobs[0]
	}
	return ""
}

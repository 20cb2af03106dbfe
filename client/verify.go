package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/check/verify"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// VerifyOptions select what Verify judges. The zero value judges all slots of the last 24 h, and
// changes nothing.
type VerifyOptions struct {
	// From and To bound the slots' instants: From inclusive, To exclusive. Default of To: the
	// broker's time. Default of From: 24 h before To.
	From, To time.Time

	// Jobs are the jobs to judge. Nil: all. A list that is empty, but not nil, is refused: it may be
	// that of a filter that found no job.
	Jobs []string

	// Repair publishes missing slots again, and slots that have neither an outcome nor a message.
	// Workers treat them like all slots, by their records.
	Repair bool

	// Progress is called often, with the number of values that were read so far. Unreadable is
	// called for each stored value that cannot be read, which Verify leaves out. Both may be
	// nil, and neither is called concurrently.
	Progress   func(values int)
	Unreadable func(error)
}

// Validate returns an error that wraps job.ErrInvalid if an option is invalid. It needs no
// broker.
func (o VerifyOptions) Validate() error {
	if err := codec.ValidateName("job", o.Jobs...); err != nil {
		return err
	}
	if o.Jobs != nil && len(o.Jobs) == 0 {
		return fmt.Errorf("%w list of jobs: it is empty; to select all jobs, leave it out", job.ErrInvalid)
	}
	if !o.From.IsZero() && !o.To.IsZero() && !o.To.After(o.From) {
		return fmt.Errorf("%w range: its end %s is not after its beginning %s", job.ErrInvalid, o.To.Format(time.RFC3339), o.From.Format(time.RFC3339))
	}
	return nil
}

// FutureError reports that the whole range of VerifyOptions is in the future, so that there is
// nothing to judge. From is its beginning, and Now is the broker's time. It matches job.ErrInvalid.
type FutureError struct{ From, Now time.Time }

func (e *FutureError) Error() string {
	return fmt.Sprintf("invalid range: its beginning %s is in the future: it must be before %s", e.From.Format(time.RFC3339), e.Now.UTC().Format(time.RFC3339))
}

// Is matches job.ErrInvalid.
func (e *FutureError) Is(target error) bool { return target == job.ErrInvalid }

// Verify computes which slots should exist, from the job definitions over time, and compares them
// with the ledger. It calls found with each slot that has a problem, job by job, and returns the
// summary. An error of found ends it; found may be nil. Verify does not judge slots about which it
// knows too little: see Verification.NotJudged.
//
// It reads all records and messages of the range. Without Repair it changes nothing. With Repair
// it can be repeated, and several programs may repair at once: their messages have the same IDs, so
// the stream drops the copies. If an error ends a repair, Verify has called found for the slots that
// it offered before the error, and has counted them in the Verification. Verify again to see the
// results.
//
// If one of the Jobs is not in the registry, or its definition cannot be read, the error wraps
// job.ErrNotFound.
func (c *Client) Verify(ctx context.Context, o VerifyOptions, found func(SlotProblem) error) (Verification, error) {
	if c.cfg.Store == nil {
		return Verification{}, errors.New("verify: this client has no store")
	}
	if err := o.Validate(); err != nil {
		return Verification{}, err
	}
	if found == nil {
		found = func(SlotProblem) error { return nil }
	}
	v := &verifier{Client: c, options: o, node: "verify-" + rand.Text()[:8]}
	cfg, err := v.config(ctx)
	if err != nil {
		return Verification{}, err
	}
	entries, err := v.entries(ctx)
	if err != nil {
		return Verification{}, err
	}
	cfg.Unreadable = v.unreadable
	v.check, v.from = verify.New(cfg, entries), cfg.From
	// Read the stream before the ledger: if a slot runs in between, its record shows it.
	for _, pass := range []func(context.Context) error{v.readRewind, v.events, v.waiting, v.recorded, v.recheck} {
		if err := pass(ctx); err != nil {
			return Verification{}, err
		}
	}
	return v.report(ctx, found)
}

// verifier is one call of Verify.
type verifier struct {
	*Client
	options VerifyOptions
	node    string // node name of the messages that it offers
	check   *verify.Check
	from    time.Time

	rewound exchange.Rewound // since from
	read    int              // values so far

	unreadable bool // a definition cannot be read
}

// entries reads the jobs to judge.
func (v *verifier) entries(ctx context.Context) (entries []plans.Entry, err error) {
	if len(v.options.Jobs) == 0 {
		if entries, err = v.cfg.Jobs.List(ctx); v.skip(err) {
			v.unreadable, err = true, nil
		}
		v.cfg.Alive()
		return entries, err
	}
	for _, name := range v.options.Jobs {
		e, err := v.Client.read(ctx, name)
		switch {
		case errors.Is(err, job.ErrNotFound), v.skip(err):
			return nil, fmt.Errorf("job %q: %w in the registry", name, job.ErrNotFound)
		case err != nil:
			return nil, err
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// config reads the inputs of the check. It reads the broker's time first, so that
// everything else is newer.
func (v *verifier) config(ctx context.Context) (verify.Config, error) {
	o := v.options
	cfg := verify.Config{From: o.From, To: o.To, Settings: v.cfg.Settings, Jobs: o.Jobs, Progress: v.progress}
	var err error
	if cfg.Now, err = v.cfg.Now(ctx); err != nil {
		return cfg, err
	}
	if cfg.To.IsZero() {
		cfg.To = cfg.Now
	}
	if cfg.From.IsZero() {
		cfg.From = cfg.To.Add(-24 * time.Hour)
	}
	if !cfg.Now.After(cfg.From) {
		return cfg, &FutureError{From: cfg.From, Now: cfg.Now}
	}
	// Without a watermark that can be read, no slot counts as published.
	if cfg.Watermark, _, err = v.cfg.Watermark.Read(ctx); err != nil && !errors.Is(err, job.ErrNotFound) && !v.skip(err) {
		return cfg, err
	}
	v.cfg.Alive()
	cfg.Nodes, err = v.cfg.Nodes.List(ctx)
	return cfg, err
}

func (v *verifier) progress() {
	v.cfg.Alive()
	if v.options.Progress != nil {
		v.options.Progress(v.read)
	}
}

// skip reports whether err concerns only one stored value, which is then left out.
func (v *verifier) skip(err error) bool {
	if !exchange.IsUnreadable(err) {
		return false
	}
	if v.options.Unreadable != nil {
		v.options.Unreadable(err)
	}
	return true
}

// readRewind reads whether a node has reported, since the beginning of the range, that the ledger
// lost writes.
func (v *verifier) readRewind(ctx context.Context) error {
	end, err := v.cfg.Store.SweepEnds().Read(ctx)
	switch {
	case errors.Is(err, job.ErrNotFound), exchange.IsUnreadable(err):
		return nil
	case err != nil:
		return err
	}
	v.cfg.Alive()
	if !end.Rewound.Time.Before(v.from) {
		v.rewound = end.Rewound
	}
	return nil
}

// skew is how far before the range Verify reads records and events, because a clock that stamped
// them may be slightly slow.
const skew = time.Minute

func (v *verifier) events(ctx context.Context) error {
	return scan(v, v.cfg.Fleet.Events(ctx, kv.EventFilter{Since: v.from.Add(-skew)}), v.check.Event)
}

func (v *verifier) waiting(ctx context.Context) error {
	messages := v.cfg.Fleet.Waiting(ctx, stream.WaitingFilter{Job: v.only(), Fired: true})
	return scan(v, messages, func(w stream.WaitingSlot) {
		if !w.Stranded {
			v.check.Waiting(w.Message, w.Published)
		}
	})
}

func (v *verifier) recorded(ctx context.Context) error {
	records := v.cfg.Ledger.List(ctx, kv.ListFilter{Job: v.only(), Since: v.from.Add(-skew)})
	return scan(v, records, func(e kv.LedgerEntry) { v.check.Record(e.Record, e.Time) })
}

// scan counts all values, and calls use with those that can be read. An error that concerns more
// than one value ends it.
func scan[T any](v *verifier, values iter.Seq2[T, error], use func(T)) error {
	for value, err := range values {
		v.read++
		v.progress()
		switch {
		case err == nil:
			use(value)
		case !v.skip(err):
			return err
		}
	}
	return nil
}

// only returns the one job to judge, so that the broker filters by it. It is empty if there are
// several, or if slots of other jobs are needed too, because the job comes after them.
func (v *verifier) only() string {
	if jobs := v.options.Jobs; len(jobs) == 1 && v.check.Alone(jobs[0]) {
		return jobs[0]
	}
	return ""
}

// recheck reads each problem's record again at the ledger's leader, because lists may be
// stale and a slot may have proceeded since the messages were listed.
func (v *verifier) recheck(ctx context.Context) error {
	if v.check.Report().OK() {
		return nil
	}
	if err := v.waiting(ctx); err != nil {
		return err
	}
	return inChunks(v.check.Problems(), func(problems []verify.Problem) error {
		records := make([]job.Record, len(problems))
		errs := make([]error, len(problems))
		err := v.eachCounted(ctx, len(problems), func(ctx context.Context, i int) error {
			if k := problems[i].Kind; k == verify.Doubled || k == verify.Early {
				errs[i] = job.ErrNotFound // a later record cannot undo it
				return nil
			}
			records[i], _, errs[i] = v.cfg.Ledger.Read(ctx, problems[i].Slot)
			if errors.Is(errs[i], job.ErrNotFound) || exchange.IsUnreadable(errs[i]) {
				return nil
			}
			return errs[i]
		})
		if err != nil {
			return err
		}
		for i, p := range problems {
			switch {
			case errs[i] == nil:
				v.check.Record(records[i], time.Time{})
			case v.skip(errs[i]):
				v.check.Unreadable(p.Slot)
			}
		}
		return nil
	})
}

// eachCounted is each, and counts each call as a value that was read.
func (v *verifier) eachCounted(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	var mu sync.Mutex
	return each(ctx, n, func(ctx context.Context, i int) error {
		err := f(ctx, i)
		mu.Lock()
		defer mu.Unlock()
		v.read++
		v.progress()
		return err
	})
}

// report calls found with each problem. With Repair it also repairs them, chunk by chunk, because
// there may be too many to hold in memory.
func (v *verifier) report(ctx context.Context, found func(SlotProblem) error) (Verification, error) {
	sum := newVerification(v.check.Report(), v.rewound)
	err := inChunks(v.check.Problems(), func(problems []verify.Problem) error {
		rows, err := v.problems(ctx, problems)
		// If a repair failed, also report the slots that were offered before it.
		var foundErr error
		for _, row := range rows {
			if row.Repair != "" {
				sum.Offered++
			}
			if row.BeyondRepair != "" {
				sum.BeyondRepair++
			}
			if foundErr == nil {
				foundErr = found(row)
			}
		}
		return cmp.Or(err, foundErr)
	})
	return sum, err
}

// problems returns the rows of the problems, and offers the repairable ones again with Repair.
func (v *verifier) problems(ctx context.Context, problems []verify.Problem) ([]SlotProblem, error) {
	rows := make([]SlotProblem, len(problems))
	err := v.eachCounted(ctx, len(problems), func(ctx context.Context, i int) error {
		p := problems[i]
		rows[i] = newSlotProblem(p)
		if !v.options.Repair || p.Beyond != "" {
			return nil
		}
		already, err := v.offer(ctx, p)
		switch {
		case errors.Is(err, errNoPayload):
			rows[i].BeyondRepair = err.Error()
		case err != nil:
			return fmt.Errorf("offer %s again: %w", p.Slot.ID(), err)
		case already:
			rows[i].Repair = RepairAlreadyOffered
		default:
			rows[i].Repair = RepairOffered
		}
		return nil
	})
	return rows, err
}

// errNoPayload is the error of offer for a triggered run whose record vanished, or became unreadable,
// after it was checked.
var errNoPayload = errors.New("its record, which had its payload, is missing or cannot be read any more")

// offer publishes a slot again, and reports whether another process has just done so.
func (v *verifier) offer(ctx context.Context, p verify.Problem) (already bool, err error) {
	if p.Reported {
		now, err := v.cfg.Now(ctx)
		if err != nil {
			return false, err
		}
		e := job.Event{
			V: codec.Version, Kind: job.EventAlert, Time: now.UTC(), Node: v.node,
			ID: p.Slot.ID(), Job: p.Slot.Job, Error: "offered again: its record is missing", Reopened: true,
		}
		if err := v.cfg.Fleet.StoreEvent(ctx, e); err != nil {
			return false, err
		}
	}
	queue, messages, payload := v.check.Offer(p, v.node)
	if p.Slot.Token != "" && p.Kind != verify.Missing { // the payload of a run that should have followed is its job's
		r, _, err := v.cfg.Ledger.Read(ctx, p.Slot)
		if errors.Is(err, job.ErrNotFound) || exchange.IsUnreadable(err) {
			return false, errNoPayload
		}
		if err != nil {
			return false, err
		}
		payload = r.Payload
	}
	already = true
	for _, m := range messages {
		folded, err := v.cfg.Slots.Put(ctx, queue, m, payload)
		if err != nil {
			return false, err
		}
		already = already && folded
	}
	return already, nil
}

// inChunks calls f with up to chunkSize values at a time, so that it holds no more of them in memory.
// The slice is valid only during the call.
func inChunks[T any](seq iter.Seq[T], f func([]T) error) error {
	const chunkSize = 1024
	chunk := make([]T, 0, chunkSize)
	for value := range seq {
		if chunk = append(chunk, value); len(chunk) == chunkSize {
			if err := f(chunk); err != nil {
				return err
			}
			chunk = chunk[:0]
		}
	}
	return f(chunk)
}

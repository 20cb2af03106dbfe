// Package board holds in memory what several pages show: the jobs with their newest slots, and the
// nodes. So a page never reads the whole ledger. For the first board, a Source reads a bounded
// number of records for each job. For each further board, it reads only the records that were
// written since the previous one.
package board

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/text/printable"
	"github.com/cronce-io/cronce/job"
)

const (
	// Recent is how many slots of a job a board has.
	Recent = 60

	// atOnce bounds the requests of a refresh.
	atOnce = 16

	// overlap is how far a refresh reads back into the time of the previous board, which may lack the
	// newest writes of that time.
	overlap = 5 * time.Second

	// maxGap is how old the previous board may be. If it is older, everything is read anew.
	maxGap = 10 * time.Minute

	// maxError bounds the bytes of an error that a board keeps.
	maxError = 200
)

// Board is what is known at a time. It does not change.
type Board struct {
	// Now is when its reading began, by the broker's clock.
	Now time.Time

	// Jobs are ordered by their names.
	Jobs  []Job
	Nodes []client.NodeRow

	// Unreadable are the errors of values that were left out.
	Unreadable []error

	written time.Time // records written before this time are in the board, except perhaps the newest: see overlap
	byName  map[string]int
}

// Job is a job with its newest slots.
type Job struct {
	client.JobRow

	// Recent are the newest slots that have a record, oldest first, at most Recent.
	Recent []Run

	// P50 and P95 are percentiles of how long the successful ones took. Zero: there are none.
	P50, P95 time.Duration
}

// Run is a slot that has a record.
type Run struct {
	ID    string
	State job.State

	// At is the slot's instant, or when it was triggered.
	At, Due, Started, Finished time.Time
	Node, Error                string
}

// Took is how long the last attempt took. Zero: it has not ended.
func (r Run) Took() time.Duration {
	if r.Finished.IsZero() || r.Started.IsZero() {
		return 0
	}
	return r.Finished.Sub(r.Started)
}

// Last returns the newest slot that has its outcome.
func (j Job) Last() (Run, bool) {
	for _, r := range slices.Backward(j.Recent) {
		if r.State.Final() {
			return r, true
		}
	}
	return Run{}, false
}

// Failing returns the newest slot that failed, if none has succeeded after it.
func (j Job) Failing() (Run, bool) {
	for _, r := range slices.Backward(j.Recent) {
		switch r.State {
		case job.Succeeded:
			return Run{}, false
		case job.Failed, job.Expired:
			return r, true
		}
	}
	return Run{}, false
}

// Job returns a job by its name.
func (b *Board) Job(name string) (Job, bool) {
	i, ok := b.byName[name]
	if !ok {
		return Job{}, false
	}
	return b.Jobs[i], true
}

// NewRun returns the run of a slot.
func NewRun(s client.SlotRow) Run {
	r := Run{
		ID: s.ID, State: s.State, At: s.When(), Due: s.Due, Started: s.Started, Finished: s.Finished, Node: s.Node,
	}
	if s.Error != "" {
		r.Error = printable.Clip(s.Error, maxError)
	}
	return r
}

// reader reads a board.
type reader struct {
	client *client.Client
	before *Board // the previous board; nil: read everything
}

var recorded = slices.DeleteFunc(client.SlotStates(), func(s job.State) bool { return s == job.Pending })

func (r reader) read(ctx context.Context) (*Board, error) {
	b := &Board{byName: map[string]int{}}
	nodes, err := r.client.Nodes(ctx, client.NodeFilter{})
	if err != nil {
		return nil, err
	}
	b.Now, b.Nodes, b.written = nodes.Now, nodes.Nodes, nodes.Now
	jobs, err := r.client.Jobs(ctx, client.JobFilter{NoLast: true, Now: b.Now})
	if err != nil {
		return nil, err
	}
	b.Unreadable = append(nodes.Unreadable, jobs.Unreadable...)
	slices.SortFunc(jobs.Jobs, func(x, y client.JobRow) int { return strings.Compare(x.Job, y.Job) })
	b.Jobs = make([]Job, len(jobs.Jobs))
	for i, row := range jobs.Jobs {
		b.Jobs[i].JobRow = row
		b.byName[row.Job] = i
	}
	if r.before != nil && b.Now.Sub(r.before.written) < maxGap {
		err = r.update(ctx, b)
	} else {
		r.before = nil
		err = r.fill(ctx, b)
	}
	return b, err
}

// fill reads the newest slots of each job that is not in the previous board.
func (r reader) fill(ctx context.Context, b *Board) error {
	var empty []*Job
	for i := range b.Jobs {
		if r.before != nil {
			if _, ok := r.before.byName[b.Jobs[i].Job]; ok {
				continue
			}
		}
		empty = append(empty, &b.Jobs[i])
	}
	empty, err := r.fillFrequent(ctx, empty)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for _, j := range empty {
		group.Go(func() error {
			list, err := r.client.ListSlots(ctx, client.SlotFilter{Job: j.Job, States: recorded, Newest: true, Limit: Recent})
			if err != nil {
				return err
			}
			j.merge(j.Recent, list.Slots)
			return nil
		})
	}
	return group.Wait()
}

// update copies the slots of the previous board, and adds what was written since.
func (r reader) update(ctx context.Context, b *Board) error {
	if err := r.fill(ctx, b); err != nil {
		return err
	}
	for i := range b.Jobs {
		j := &b.Jobs[i]
		if old, ok := r.before.Job(j.Job); ok {
			j.Recent, j.P50, j.P95 = old.Recent, old.P50, old.P95
		}
	}
	changed := map[string][]client.SlotRow{}
	for s, err := range r.client.WrittenSince(ctx, r.before.written.Add(-overlap)) {
		at, known := b.byName[s.Job]
		switch {
		case exchange.IsUnreadable(err):
			if len(b.Unreadable) < maxUnreadable {
				b.Unreadable = append(b.Unreadable, err)
			}
			continue
		case err != nil:
			return err
		case !known:
			continue // the job was removed
		}
		s.Output = ""
		rows := append(changed[s.Job], s)
		if len(rows) == 2*Recent {
			b.Jobs[at].merge(b.Jobs[at].Recent, rows)
			rows = rows[:0]
		}
		changed[s.Job] = rows
	}
	for name, rows := range changed {
		j := &b.Jobs[b.byName[name]]
		j.merge(j.Recent, rows)
	}
	return nil
}

// maxUnreadable bounds the errors of a board. Others are left out.
const maxUnreadable = 100

// merge sets Recent to the newest slots of before and rows. In a refresh, most rows are in before.
func (j *Job) merge(before []Run, rows []client.SlotRow) {
	rows = slices.DeleteFunc(rows, func(s client.SlotRow) bool { return slices.Contains(before, NewRun(s)) })
	if len(rows) == 0 {
		return
	}
	all := append(make([]Run, 0, len(before)+len(rows)), before...)
	for _, s := range rows {
		r := NewRun(s)
		if at := slices.IndexFunc(all, func(old Run) bool { return old.ID == r.ID }); at >= 0 {
			all[at] = r
		} else {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(x, y Run) int { return cmp.Or(x.At.Compare(y.At), strings.Compare(x.ID, y.ID)) })
	if j.Recent = all[max(0, len(all)-Recent):]; len(all) > 2*Recent {
		j.Recent = slices.Clone(j.Recent) // so that the rest does not stay in memory
	}
	var took []time.Duration
	for _, r := range j.Recent {
		if r.State == job.Succeeded {
			took = append(took, r.Took())
		}
	}
	slices.Sort(took)
	if n := len(took); n > 0 {
		j.P50, j.P95 = took[(n-1)/2], took[(n-1)*95/100]
	}
}

// Source reads boards when pages ask for them, one at a time. It is safe for concurrent use.
type Source struct {
	boards Background[struct{}, *Board]
	read   func(context.Context) (*Board, error)
}

// NewSource returns a source that reads until ctx ends.
func NewSource(ctx context.Context, c *client.Client) *Source {
	var last *Board // needs no lock: one reading runs at a time
	return &Source{
		boards: Background[struct{}, *Board]{Context: ctx, Every: 24 * time.Hour, Max: 1}, // Get says how old a board may be
		read: func(ctx context.Context) (*Board, error) {
			b, err := reader{c, last}.read(ctx)
			if err == nil {
				last = b
			}
			return b, err
		},
	}
}

// Wait waits for the end of the last reading. The context of NewSource must have ended.
func (s *Source) Wait() { s.boards.Wait() }

const (
	// patience is how long a page that accepts the previous board waits for a new one. maxAge is the
	// age up to which the previous board is accepted. If a reading has lasted for slow, the broker
	// may be away: then pages wait, since they must not show old data as if they were new.
	patience = 40 * time.Millisecond
	maxAge   = 10 * time.Second
	slow     = time.Second
)

// ReadingError is returned by Get if the first reading of the process goes on when the request ends.
type ReadingError struct{ For time.Duration }

func (e *ReadingError) Error() string {
	return fmt.Sprintf("the jobs and their newest slots are being read, for %v so far", e.For.Round(100*time.Millisecond))
}

// Unwrap returns context.DeadlineExceeded: the request has ended.
func (e *ReadingError) Unwrap() error { return context.DeadlineExceeded }

// Get returns a board whose reading began at notBefore or later. If acceptOld is true and the reading
// takes long, Get returns the previous board, provided that it is younger than maxAge.
func (s *Source) Get(ctx context.Context, notBefore time.Time, acceptOld bool) (*Board, error) {
	if acceptOld {
		r := s.boards.Get(ctx, struct{}{}, notBefore, 0, s.read)
		if r.Ready && time.Since(r.At) < maxAge && time.Since(r.Began) < slow {
			r = s.boards.Get(ctx, struct{}{}, notBefore, patience, s.read)
			if r.Running || !r.At.Before(notBefore) {
				return r.Value, nil
			}
		}
	}
	r := s.boards.Get(ctx, struct{}{}, notBefore, computeTime, s.read)
	if r.Ready && !r.At.Before(notBefore) {
		return r.Value, nil
	}
	if ctx.Err() != nil && r.Running && !r.Ready {
		return nil, &ReadingError{time.Since(r.Began)}
	}
	return nil, cmp.Or(ctx.Err(), r.Err, context.Canceled) // canceled: the process shuts down
}

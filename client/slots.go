package client

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// SlotFilter selects slots. Its zero value selects all.
type SlotFilter struct {
	// Job selects the slots of one job. Empty: of all jobs.
	Job string

	// States selects the slots in one of these states. Empty: in any.
	States []job.State

	// Since selects the slots planned at this time or later. Zero: all.
	Since time.Time

	// EndedSince selects the slots that got their outcome at this time or later, whenever they
	// were planned. Zero: all, also those without an outcome.
	EndedSince time.Time

	// After selects the slots after this cursor. Empty: from the beginning.
	After Cursor

	// Limit bounds the rows and, without Newest, the memory that the listing takes. 0: no limit.
	Limit int

	// Newest selects the newest rows, up to Limit, instead of the oldest ones. It requires a
	// Limit and excludes After. The rows are still listed oldest first. With Newest, records are read
	// from the newest write back until there are enough rows. So the number of requests does not
	// depend on how many records the ledger has, unless few of them are in one of the States: then
	// set Since or EndedSince too, which bound the read.
	Newest bool
}

func (f SlotFilter) check() error {
	if err := codec.ValidateJobFilter(f.Job); err != nil {
		return err
	}
	for _, state := range f.States {
		if !slices.Contains(SlotStates(), state) {
			return fmt.Errorf("%w state %.80q: want one of %v", job.ErrInvalid, string(state), SlotStates())
		}
	}
	if f.Limit < 0 {
		return fmt.Errorf("%w limit %d: must be at least 0", job.ErrInvalid, f.Limit)
	}
	if f.Newest && (f.Limit == 0 || f.After != "") {
		return fmt.Errorf("%w filter: the newest slots need a limit, and no cursor", job.ErrInvalid)
	}
	return f.After.checkTime()
}

func (f SlotFilter) selects(s SlotRow) bool {
	return f.selectsState(s.State) && !s.When().Before(f.Since) && !s.Finished.Before(f.EndedSince) && (f.After == "" || s.Cursor() > f.After)
}

// earliestWrite returns a time before which no record that the filter selects was last written. A
// record is written after its slot's instant, and not before its outcome. The minute allows for
// clocks that differ. Zero: any record may be selected.
func (f SlotFilter) earliestWrite() time.Time {
	since := plans.Later(f.Since, f.EndedSince)
	if since.IsZero() {
		return since
	}
	return since.Add(-time.Minute)
}

func (f SlotFilter) selectsState(s job.State) bool {
	return len(f.States) == 0 || slices.Contains(f.States, s)
}

// selectsWaiting reports whether the filter selects slots that have no record.
func (f SlotFilter) selectsWaiting() bool {
	return f.selectsState(job.Pending) && f.EndedSince.IsZero()
}

// SlotList is a listing of slots, oldest first.
type SlotList struct {
	Slots []SlotRow

	// Next is the cursor after which to continue. Empty: the listing is complete. If Next is set,
	// there may still be fewer rows than the limit, even none.
	Next Cursor

	// Unreadable are the errors of values that were left out.
	Unreadable []error
}

// ListSlots lists the slots with a record, and those that wait in the streams. It reads the
// streams before the ledger. If a worker takes a slot between the two reads, the record shows
// it, so no slot is missing.
func (c *Client) ListSlots(ctx context.Context, f SlotFilter) (SlotList, error) {
	var list SlotList
	if err := f.check(); err != nil {
		return list, err
	}
	if f.Newest {
		return c.newestSlots(ctx, f)
	}
	// With a limit, waiting has only the earliest waiting slots, up to the cursor end, so the listing
	// stops there. It may then have fewer rows than the limit: a slot in waiting may have a record by
	// now that the filter does not select.
	waiting, end, err := c.waiting(ctx, f, &list)
	if err != nil {
		return list, err
	}
	cut := false
	for e, err := range readable(c, c.cfg.Ledger.List(ctx, kv.ListFilter{Job: f.Job, Since: f.earliestWrite()}), &list.Unreadable) {
		if err != nil {
			return list, err
		}
		row := recordedSlot(e)
		if delete(waiting, row.ID); !f.selects(row) {
			continue
		}
		if list.Slots = append(list.Slots, row); f.Limit > 0 && len(list.Slots) >= 2*f.Limit {
			list.Slots, cut = earliest(list.Slots, f.Limit), true
		}
	}
	list.Slots = slices.AppendSeq(list.Slots, maps.Values(waiting))
	slices.SortFunc(list.Slots, compareSlots)
	list.cutAt(f.Limit, cut, end)
	return list, nil
}

// slotPage is how many rows Slots asks for at first. Each page reads all that the filter may select, so each
// further page is larger, up to maxSlotPage.
const (
	slotPage    = 10_000
	maxSlotPage = 16 * slotPage
)

// Slots iterates over the slots that the filter selects, oldest first. It lists them in pages, so it
// holds a few hundred thousand rows at most, unless Newest is set. A value that cannot be read
// yields an error that wraps job.ErrInvalid or job.ErrVersion, and the iteration goes on; with After,
// Slots leaves such a value out. Any other error ends the iteration.
func (c *Client) Slots(ctx context.Context, f SlotFilter) iter.Seq2[SlotRow, error] {
	return func(yield func(SlotRow, error) bool) {
		left, limited := f.Limit, f.Limit > 0
		for size := slotPage; ; size = min(4*size, maxSlotPage) {
			page := f
			if page.Limit = size; limited {
				page.Limit = min(left, size)
			}
			if f.Newest {
				page.Limit = f.Limit
			}
			list, err := c.ListSlots(ctx, page)
			if err != nil {
				yield(SlotRow{}, err)
				return
			}
			for _, unreadable := range list.Unreadable {
				if f.After == "" && !yield(SlotRow{}, unreadable) { // each page finds them again
					return
				}
			}
			for _, row := range list.Slots {
				if !yield(row, nil) {
					return
				}
			}
			left -= len(list.Slots)
			if f.After = list.Next; list.Next == "" || limited && left <= 0 {
				return
			}
		}
	}
}

// cutAt cuts a sorted listing at the limit, and at the cursor end, up to which the waiting slots
// are known. cut says whether rows of records were already dropped for the limit.
func (l *SlotList) cutAt(limit int, cut bool, end Cursor) {
	if end != "" {
		l.Slots = slices.DeleteFunc(l.Slots, func(s SlotRow) bool { return s.Cursor() > end })
		l.Next = end
	}
	if limit > 0 && (len(l.Slots) > limit || cut && len(l.Slots) == limit) {
		l.Slots = l.Slots[:limit]
		l.Next = l.Slots[limit-1].Cursor()
	}
}

// earliest returns the first n rows.
func earliest(rows []SlotRow, n int) []SlotRow {
	slices.SortFunc(rows, compareSlots)
	clear(rows[n:]) // free their outputs
	return rows[:n]
}

// waiting returns the waiting slots that the filter selects, by ID. With a limit, they are
// complete only up to end. An empty end means that they are complete.
func (c *Client) waiting(ctx context.Context, f SlotFilter, list *SlotList) (byID map[string]SlotRow, end Cursor, err error) {
	byID = map[string]SlotRow{}
	if !f.selectsWaiting() {
		return byID, "", nil
	}
	for w, err := range readable(c, c.cfg.Fleet.Waiting(ctx, stream.WaitingFilter{Job: f.Job}), &list.Unreadable) {
		if err != nil {
			return nil, "", err
		}
		row := pendingSlot(w)
		if !f.selects(row) || end != "" && row.Cursor() > end {
			continue
		}
		if byID[row.ID] = row; f.Limit > 0 && len(byID) >= 2*f.Limit {
			kept := earliest(slices.Collect(maps.Values(byID)), f.Limit)
			end = kept[f.Limit-1].Cursor()
			clear(byID)
			for _, row := range kept {
				byID[row.ID] = row
			}
		}
	}
	return byID, end, nil
}

// Last returns a job's newest slot that has a record. If there is none, the error wraps
// job.ErrNotFound. Last takes a few requests, however many records the ledger has.
func (c *Client) Last(ctx context.Context, name string) (SlotRow, error) {
	if err := codec.ValidateName("job", name); err != nil {
		return SlotRow{}, err
	}
	now, err := c.cfg.Now(ctx)
	if err != nil {
		return SlotRow{}, err
	}
	rows, err := c.newest(ctx, name, now, 1)
	if err != nil {
		return SlotRow{}, err
	}
	if len(rows) == 0 {
		return SlotRow{}, fmt.Errorf("last slot of job %s: %w: it has no record", name, job.ErrNotFound)
	}
	return rows[0], nil
}

// LastWritten iterates over the slots of all jobs that have a record, in the order of their last
// writes, newest first. It reads only as much of the ledger as the caller takes. The newest writes
// may be missing. A record that cannot be read yields an error that wraps job.ErrInvalid or
// job.ErrVersion, and the iteration goes on. Any other error ends it.
func (c *Client) LastWritten(ctx context.Context) iter.Seq2[SlotRow, error] {
	return c.rows(c.cfg.Ledger.Newest(ctx, ""))
}

// WrittenSince is like LastWritten for the slots whose record was last written at since or later,
// by the broker's clock, oldest first. It reads only those records.
func (c *Client) WrittenSince(ctx context.Context, since time.Time) iter.Seq2[SlotRow, error] {
	return c.rows(c.cfg.Ledger.List(ctx, kv.ListFilter{Since: since}))
}

func (c *Client) rows(entries iter.Seq2[kv.LedgerEntry, error]) iter.Seq2[SlotRow, error] {
	return func(yield func(SlotRow, error) bool) {
		for e, err := range entries {
			c.cfg.Alive()
			var row SlotRow
			if err == nil {
				row = recordedSlot(e)
			}
			if !yield(row, err) {
				return
			}
		}
	}
}

// recordsFor returns how many records to read, newest write first, to find the newest n slots. It is
// larger than n, because an old slot that is retried, backfilled or caught up is written late.
func recordsFor(n int) int { return 4*n + 16 }

// newestSlots is ListSlots with SlotFilter.Newest. It reads the streams before the ledger,
// as ListSlots does.
func (c *Client) newestSlots(ctx context.Context, f SlotFilter) (list SlotList, err error) {
	rows := map[job.Slot]SlotRow{}
	if f.selectsWaiting() {
		if err := c.newestWaiting(ctx, f, rows, &list); err != nil {
			return list, err
		}
	}
	records := 0
	for e, err := range readable(c, c.selectedRecords(ctx, f), &list.Unreadable) {
		if err != nil {
			return list, err
		}
		row := recordedSlot(e)
		if delete(rows, e.Slot); f.selects(row) {
			rows[e.Slot] = row
			records++
		}
		if records >= recordsFor(f.Limit) || e.Time.Before(f.earliestWrite()) {
			break
		}
	}
	list.Slots = newestRows(rows, f.Limit)
	return list, nil
}

// selectedRecords iterates over the records that the filter may select, newest write first. A slot that
// waits has none.
func (c *Client) selectedRecords(ctx context.Context, f SlotFilter) iter.Seq2[kv.LedgerEntry, error] {
	if len(f.States) > 0 && !slices.ContainsFunc(f.States, func(s job.State) bool { return s != job.Pending }) {
		return func(func(kv.LedgerEntry, error) bool) {}
	}
	return c.cfg.Ledger.Newest(ctx, f.Job)
}

// newestRows returns the newest n rows, oldest first.
func newestRows(rows map[job.Slot]SlotRow, n int) []SlotRow {
	sorted := slices.SortedFunc(maps.Values(rows), compareSlots)
	return sorted[max(0, len(sorted)-n):]
}

// newestWaiting adds the newest waiting slots that the filter selects to rows. It reads all timers,
// because their order is not that of their times, and the stream of slots from the newest message back
// until there are enough.
func (c *Client) newestWaiting(ctx context.Context, f SlotFilter, rows map[job.Slot]SlotRow, list *SlotList) error {
	enough, found := recordsFor(f.Limit), map[job.Slot]SlotRow{}
	for w, err := range readable(c, c.cfg.Timers.Waiting(ctx, stream.WaitingFilter{Job: f.Job}), &list.Unreadable) {
		if err != nil {
			return err
		}
		if found[w.Slot] = pendingSlot(w); len(found) >= 2*enough {
			oldest := newestRows(found, enough)[0]
			maps.DeleteFunc(found, func(_ job.Slot, row SlotRow) bool { return compareSlots(row, oldest) < 0 })
		}
	}
	if err := c.addWaiting(ctx, f, found, rows); err != nil {
		return err
	}
	before := len(rows)
	for w, err := range readable(c, c.cfg.Slots.Waiting(ctx, stream.WaitingFilter{Job: f.Job, Newest: true}), &list.Unreadable) {
		if err != nil {
			return err
		}
		old := w.Published.Before(f.earliestWrite())
		if found[w.Slot] = pendingSlot(w); len(found) < enough && !old {
			continue
		}
		if err := c.addWaiting(ctx, f, found, rows); err != nil {
			return err
		}
		if old || len(rows)-before >= enough {
			return nil
		}
	}
	return c.addWaiting(ctx, f, found, rows)
}

// addWaiting moves the found slots that the filter selects to rows. A slot that a worker has claimed
// already has a record.
func (c *Client) addWaiting(ctx context.Context, f SlotFilter, found, rows map[job.Slot]SlotRow) error {
	if len(found) == 0 {
		return nil
	}
	records, err := c.cfg.Ledger.Records(ctx, slices.Collect(maps.Keys(found)))
	if err != nil {
		return err
	}
	c.cfg.Alive()
	for slot, row := range found {
		if e, ok := records[slot]; ok {
			row = recordedSlot(e)
		}
		if f.selects(row) {
			rows[slot] = row
		}
	}
	clear(found)
	return nil
}

// newest returns the rows of a job's newest n slots that have a record, in the order of their
// times. It searches the records that were written last, and the records of the job's last planned
// slots.
func (c *Client) newest(ctx context.Context, name string, now time.Time, n int) ([]SlotRow, error) {
	var found, planned map[job.Slot]kv.LedgerEntry
	group, reading := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		found, err = c.newestRecords(reading, name, n)
		return err
	})
	group.Go(func() error {
		e, err := c.read(reading, name)
		if err != nil {
			return nil //nolint:nilerr // without a definition, use only the records that were written last
		}
		planned, err = c.cfg.Ledger.Records(reading, c.lastPlanned(e, now, n))
		c.cfg.Alive()
		return err
	})
	if err := group.Wait(); err != nil {
		return nil, err
	}
	maps.Copy(found, planned)
	rows := make([]SlotRow, 0, len(found))
	for _, e := range found {
		rows = append(rows, recordedSlot(e))
	}
	slices.SortFunc(rows, compareSlots)
	return rows[max(0, len(rows)-n):], nil
}

// newestRecords returns the records of a job that were written last, enough of them to contain its
// newest n slots (see recordsFor).
func (c *Client) newestRecords(ctx context.Context, name string, n int) (map[job.Slot]kv.LedgerEntry, error) {
	found := map[job.Slot]kv.LedgerEntry{}
	for e, err := range readable(c, c.cfg.Ledger.Newest(ctx, name), nil) {
		if err != nil {
			return nil, err
		}
		if e.Slot.Shards == 0 {
			found[e.Slot] = e
		}
		if len(found) >= recordsFor(n) {
			break
		}
	}
	return found, nil
}

// lastPlanned returns the last n slots, up to now, of each of the job's plans. It goes back no
// further than the ledger's retention.
func (c *Client) lastPlanned(e plans.Entry, now time.Time, n int) (planned []job.Slot) {
	name := e.Job.Name
	for _, p := range e.Plans() {
		s, err := job.ParseSchedule(name, p.Plan)
		if err != nil {
			continue
		}
		until := plans.UpTo(now, p.To)
		after := plans.Later(p.From, now.Add(-c.cfg.Settings.Retention))
		if !after.Before(until) {
			continue
		}
		for _, at := range s.Last(after, until, n) {
			planned = append(planned, job.NewSlot(name, at))
		}
	}
	return planned
}

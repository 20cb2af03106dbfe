package core

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/job"
)

// Entry is one slot in a job's line: a message of the stream of waiting slots. It holds no payload.
// The slot's record, in the state Waiting, has all that is needed to run the slot.
//
// An entry counts until the slot is called, or has ended. Then the slot's record is no longer
// Waiting, or the lock's Line is behind the entry. A slot may have several entries, of which the
// first one counts.
type Entry struct {
	// Slot is a whole slot: all shards of a slot share one place.
	Slot job.Slot

	// At and OnTime are those of LockSlot.
	At     time.Time
	OnTime bool

	// Sequence is the stream's. It is not part of the value.
	Sequence uint64
}

// NewEntry returns the entry of an entrant that found no place.
func NewEntry(e Entrant) Entry { return Entry{Slot: e.Slot, At: e.At, OnTime: e.OnTime} }

// EntryID returns the message ID of an entry. revision is that of the slot's record, so each record
// that waits has one entry, however often it is sent.
func EntryID(s job.Slot, revision uint64) string { return fmt.Sprintf("%s/w%d", s.ID(), revision) }

// SortEntries sorts entries by the turn of their slots. Workers put slots into the line at the same
// time, so their order in the stream is not quite that of their instants.
func SortEntries(all []Entry) {
	slices.SortStableFunc(all, func(a, b Entry) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Slot.ID(), b.Slot.ID()))
	})
}

type entryWire struct {
	V      int       `json:"v"`
	ID     string    `json:"id"`
	At     time.Time `json:"at"`
	OnTime bool      `json:"on_time,omitempty"`
}

// MarshalJSON returns the body of the message.
func (e Entry) MarshalJSON() ([]byte, error) {
	return json.Marshal(entryWire{codec.Version, e.Slot.ID(), e.At.UTC(), e.OnTime})
}

// DecodeEntry decodes the body of a message on the subject of the named job.
func DecodeEntry(name string, data []byte) (Entry, error) {
	var w entryWire
	if _, err := codec.DecodeBounded("entry", data, &w, func(b *codec.Bounds) { b.Times("at", &w.At) }); err != nil {
		return Entry{}, err
	}
	slot, err := job.ParseSlotID(w.ID)
	if err == nil && (slot.Job != name || slot != slot.Whole()) {
		err = fmt.Errorf("%w entry in the line of job %q: it names slot %q", job.ErrInvalid, codec.Clip(name), codec.Clip(w.ID))
	}
	if err != nil {
		return Entry{}, err
	}
	return Entry{Slot: slot, At: w.At, OnTime: w.OnTime}, nil
}

// stand decides to put the slot into its job's line: first its record is written, with the state
// Waiting, and then its entry. The record of a slot that was offered again is written anew, so that
// its entry has a new ID: the stream would drop a second one with the old ID.
func stand(d Delivery, v View) Decision {
	known := v.known(d)
	r := known
	switch {
	case known != nil && known.State == job.Waiting && d.Offer == 0:
		return Decision{Action: Stand, Record: *known, Stored: true}
	case d.Slot.Shards > 0 && known == nil:
		whole := newWhole(d)
		r = &whole
	case d.Slot.Shards == 0:
		own := record(d, v)
		r = &own
	}
	waiting := *r
	waiting.State, waiting.Node, waiting.RetryAt = job.Waiting, v.Self, time.Time{}
	if known == nil {
		waiting.StartBy = deadlineOf(d, v)
	}
	waiting.OnTime = isOnTime(d, v)
	return Decision{Action: Stand, Record: waiting}
}

// IsOver reports whether a slot that stands in the line has to end instead of getting a place: a newer
// slot has displaced it, or it is too old. policy is the overlap policy of its job.
func (l Lock) IsOver(e Entry, r job.Record, policy job.Overlap, v View) bool {
	tooOld := v.certain().Sub(Began(r)) > v.Horizon || startsTooLate(&r, v)
	return l.Displaced(e, policy) || tooOld && !v.Implausible
}

// outcomeByAge returns the outcome of a slot past the horizon: it has failed if it had attempts.
func outcomeByAge(r job.Record) job.State {
	if len(r.Attempts) > 0 {
		return job.Failed
	}
	return job.Expired
}

// CallMessages returns the messages of a slot that is called from the line, or whose message was
// lost while it held a place. revision is that of its record. All nodes that find the record at this
// revision use the same message IDs, so the stream folds their messages. A split slot has a
// message for each shard. chained is true if the slot follows other slots by its job's definition.
func CallMessages(r job.Record, revision uint64, node string, chained bool) (all []Message) {
	m := Message{Slot: r.Slot, JobRevision: r.JobRevision, Node: node, Due: r.Due, Event: r.Event, Offer: OfferOf(revision)}
	if r.Shards == 0 {
		return []Message{m}
	}
	m.Chained = chained
	m.CaughtUp = true // the deadline counts from now on: it was checked when the slot was called
	for i := range r.Shards {
		m.Slot = r.Slot.WithShard(i+1, r.Shards)
		all = append(all, m)
	}
	return all
}

// OfferOf returns the offer number for a slot whose record is at revision; 0 is no record. The
// number 1 belongs to "cronce verify".
func OfferOf(revision uint64) int { return int(revision) + 2 }

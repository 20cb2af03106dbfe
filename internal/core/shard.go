package core

import (
	"fmt"
	"time"

	"github.com/cronce-io/cronce/job"
)

// A slot that is split has a record for each of its parts, and one for the whole.
// The whole's is created before the first part is claimed, once, and fixes the
// number of parts. It is nobody's, no handler belongs to it; its outcome is derived
// from the parts', by whoever writes the last of these. What ends the slot before
// any part has begun (it is skipped, or too old) is written into the whole's alone.

// Whole is what a worker knows of the slot that a shard is a part of.
type Whole struct {
	// Known says that it was looked up at the ledger's leader. Record is nil for
	// none, Revision the key's.
	Known    bool
	Record   *job.Record
	Revision uint64
}

// divided decides about a shard as far as its whole slot does; false when nothing
// there keeps it from what the other rules say.
func divided(d Delivery, v View) (Step, bool) {
	w := v.Whole.Record
	switch {
	case d.Slot.Shards == 0:
		return Step{}, false
	case !v.Whole.Known:
		return Step{Action: LearnWhole}, true
	case w == nil:
		return Step{}, false
	case w.Shards != d.Slot.Shards:
		return Step{Action: Ack}, true // split otherwise, for good
	case w.State.Final() && v.Record == nil:
		return Step{Action: Ack}, true // it ended as a whole, and this is no news
	case w.State.Final(), w.Error != "":
		return Step{Action: End, Record: ended(record(d, v), v, job.Cancelled, w.Error)}, true
	}
	return Step{}, false
}

// split is the record of the whole slot that is about to begin.
func split(d Delivery) job.Record {
	n := d.Slot.Shards
	d.Slot = d.Slot.Whole()
	r := record(d, View{})
	r.State, r.Shards = job.Running, n
	return r
}

// wholeEnd is the outcome of the whole slot, of which no part has begun.
func wholeEnd(d Delivery, v View, outcome job.State, reason string) job.Record {
	n := d.Slot.Shards
	d.Slot = d.Slot.Whole()
	r := ended(record(d, View{}), v, outcome, reason)
	r.Shards = n
	return r
}

// MarkWhole is the record of a whole slot, r, whose parts are to end for the cause:
// those that wait see it, those that run have to be asked.
func MarkWhole(r job.Record, cause error) job.Record {
	r.Error = clipError(cause.Error())
	return r
}

// CancelWhole is the record that ends a whole slot, for the cause, of which no part
// has begun. d is the message of one of its parts.
func CancelWhole(d Delivery, v View, cause error) job.Record {
	return wholeEnd(d, v, job.Cancelled, cause.Error())
}

// ReopenWhole is the record of a whole slot that has ended, r, whose parts are to be
// given a new start.
func ReopenWhole(r job.Record) job.Record {
	r.State, r.Node, r.Error, r.Finished = job.Running, "", "", time.Time{}
	return r
}

// Conclude is the outcome of a whole slot, r, all of whose parts have one: success
// only if all have succeeded.
func Conclude(r job.Record, parts []job.Record, by string, now time.Time) job.Record {
	why := r.Error
	r.State, r.Node, r.Finished, r.Error = job.Succeeded, by, now.UTC(), ""
	for _, state := range []job.State{job.Failed, job.Cancelled, job.Expired, job.Missed, job.Skipped} {
		n := 0
		for _, p := range parts {
			if p.State != state {
				continue
			}
			if n++; n == 1 && r.State == job.Succeeded {
				r.State, r.Error = state, fmt.Sprintf("shard %dof%d: %s", p.Slot.Shard, p.Slot.Shards, p.Error)
			}
		}
		if n > 1 && r.State == state {
			r.Error = fmt.Sprintf("%d of %d shards %s; %s", n, len(parts), state, r.Error)
		}
	}
	if r.State == job.Cancelled && why != "" {
		r.Error = why
	}
	for _, p := range parts {
		r.Attempt = max(r.Attempt, p.Attempt)
	}
	r.Error = clipError(r.Error)
	return r
}

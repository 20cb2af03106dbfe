package core

import (
	"fmt"
	"time"

	"github.com/cronce-io/cronce/job"
)

// A split slot has a record for each shard, and one for the whole slot. The record of the
// whole slot is created once, before the first shard is claimed, and fixes the number of shards. No
// node owns it, and no handler runs it. The worker that writes the last outcome of a shard computes
// the outcome of the whole slot. If the slot ends before any shard has started (it is skipped, or
// too old), only the record of the whole slot is written.

// Whole is what a worker knows about the whole slot of a shard.
type Whole struct {
	// Known is true if Record was read from the ledger's leader. A nil Record then means that
	// there is none. Revision is that of the key.
	Known    bool
	Record   *job.Record
	Revision uint64
}

// decideByWhole decides about a shard if the record of its whole slot determines the decision, or must
// be read first. It returns false if the other rules apply.
func decideByWhole(d Delivery, v View) (Decision, bool) {
	w := v.Whole.Record
	switch {
	case d.Slot.Shards == 0:
		return Decision{}, false
	case !v.Whole.Known:
		return Decision{Action: ReadWhole}, true
	case w == nil:
		return Decision{}, false
	case w.Shards != d.Slot.Shards:
		return Decision{Action: Ack}, true // the slot has another number of shards
	case w.State.Final() && v.Record == nil:
		return Decision{Action: Ack}, true // the whole slot ended before this shard started
	case w.State.Final(), w.Error != "":
		return Decision{Action: End, Record: withOutcome(record(d, v), v, job.Cancelled, w.Error)}, true
	}
	return Decision{}, false
}

// newWhole returns the first record of the whole slot.
func newWhole(d Delivery) job.Record {
	n := d.Slot.Shards
	d.Slot = d.Slot.Whole()
	r := record(d, View{})
	r.State, r.Shards = job.Running, n
	return r
}

// MarkWhole returns r, the record of a whole slot, with the cause with which all its shards must
// end. The workers of waiting shards read it. The nodes of running shards need a CancelRequest.
func MarkWhole(r job.Record, cause error) job.Record {
	r.Error = clipError(cause.Error())
	return r
}

// CancelWhole returns the record that ends a whole slot before any shard has started. d is the
// message of one shard.
func CancelWhole(d Delivery, v View, cause error) job.Record {
	return withOutcome(newWhole(d), v, job.Cancelled, cause.Error())
}

// ReopenWhole returns r, the record of a whole slot, without its outcome, so that its shards can run
// again.
func ReopenWhole(r job.Record) job.Record {
	r.State, r.Node, r.Error, r.Finished = job.Running, "", "", time.Time{}
	return r
}

// Conclude returns r, the record of a whole slot, with its outcome. All shards have ended. If all
// have succeeded, the outcome is succeeded. Otherwise it is the first of failed, cancelled, expired,
// missed and skipped that is the outcome of a shard.
func Conclude(r job.Record, shards []job.Record, by string, now time.Time) job.Record {
	why := r.Error
	r.State, r.Node, r.Finished, r.Error = job.Succeeded, by, now.UTC(), ""
	for _, state := range []job.State{job.Failed, job.Cancelled, job.Expired, job.Missed, job.Skipped} {
		n := 0
		for _, p := range shards {
			if p.State != state {
				continue
			}
			if n++; n == 1 && r.State == job.Succeeded {
				r.State, r.Error = state, fmt.Sprintf("shard %dof%d: %s", p.Slot.Shard, p.Slot.Shards, p.Error)
			}
		}
		if n > 1 && r.State == state {
			r.Error = fmt.Sprintf("%d of %d shards %s; %s", n, len(shards), state, r.Error)
		}
	}
	if r.State == job.Cancelled && why != "" {
		r.Error = why
	}
	shadows := 0
	for _, p := range shards {
		r.Attempt = max(r.Attempt, p.Attempt)
		if p.IsShadow() {
			shadows++
		}
	}
	if r.Shadow = 0; shadows == len(shards) {
		r.Shadow = r.Attempt
	}
	r.Error = clipError(r.Error)
	return r
}

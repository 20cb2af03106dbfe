package core

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/job"
)

// MaxLockWaiting bounds the slots that wait in the value of one job's lock. Further slots are not
// in the lock: they retry, in no order.
const MaxLockWaiting = 100

// Lock is the value of lock.<job> in the state bucket. It limits how many slots of a job run at
// once: it lists the slots that hold a place, and the slots that wait for one.
//
// Invariants:
//   - A slot holds its place from before its first claim until its outcome is in the ledger,
//     including retries, takeovers and the time between them. Only the slot's record,
//     read at the leader, shows that the slot has ended. The death of its owner does not.
//   - Every write of a lock names the revision that it replaces, and no worker deletes a lock.
//     So a writer that was suspended cannot overwrite what other writers have stored meanwhile.
//   - There are never more holders than places, unless an edit of the job has reduced the
//     places.
type Lock struct {
	Job     string
	Holders []LockSlot

	// Waiting is sorted by LockSlot.At, and has at most MaxLockWaiting elements.
	Waiting []LockSlot

	// Newest is the instant of the newest slot that was published on time and entered under
	// OverlapLatest or OverlapReplace. Under these policies, older slots that were published on
	// time are skipped.
	Newest time.Time

	Nonce string
	Extra codec.Extra
}

// LockSlot is one slot in a lock.
type LockSlot struct {
	Slot job.Slot

	// At determines the slot's turn. It is the slot's instant. For a slot with a Token, it is
	// when the message with which the slot entered the lock was published.
	At time.Time

	// OnTime is true if the slot was published on time and had not begun when it entered the
	// lock. Then, depending on its job's policy, a newer slot may replace it.
	OnTime bool

	// Since is when the slot's stay in the lock began, by the writer's estimate of the broker's
	// clock: when the slot entered, when its own write made it a holder, or when Renewed set it. A
	// slot that is reopened may enter again, and Since tells its stays apart.
	Since time.Time
}

// AdmissionKind is a lock's verdict on an entrant.
type AdmissionKind int

const (
	// AdmissionUnasked: the worker has not asked the lock.
	AdmissionUnasked AdmissionKind = iota
	// AdmissionGranted: the slot holds a place, as soon as the new lock is stored.
	AdmissionGranted
	// AdmissionQueued: the slot waits in the lock.
	AdmissionQueued
	// AdmissionCrowded: the lock's list of waiting slots is full. The slot must retry.
	AdmissionCrowded
	// AdmissionSkipped: the job's policy skips the slot because of Admission.InWay.
	AdmissionSkipped
	// AdmissionReplaced: by the job's policy, the newer slot Admission.InWay replaces the slot.
	AdmissionReplaced
)

// Admission is a lock's verdict with its details.
type Admission struct {
	Kind AdmissionKind

	// InWay is the slot because of which this one is skipped or replaced. It is set only for
	// AdmissionSkipped and AdmissionReplaced.
	InWay job.Slot

	// Ahead is the number of waiting slots whose turn comes before this slot's.
	Ahead int

	// Displaces is the holder that this slot replaces, or the zero slot.
	Displaces job.Slot
}

// Entrant is a slot that requests a place.
type Entrant struct {
	LockSlot
	Policy job.Overlap

	// Places is how many slots of the job may run at once. It is 0 if the job was deleted, so
	// that the number is unknown. Then the slot is admitted without a place if the lock is
	// empty. Otherwise the job counts as one with a single place.
	Places int
}

// InLine reports whether the entrant waits for its turn: it is never skipped, and it does not
// replace other slots.
func (e Entrant) InLine() bool {
	return !e.OnTime || e.Policy == job.OverlapQueue || e.Policy == job.OverlapAllow
}

// supersedes reports whether the entrant replaces older waiting slots that were on time, and is
// refused if a newer one has entered.
func (e Entrant) supersedes() bool {
	return e.OnTime && (e.Policy == job.OverlapLatest || e.Policy == job.OverlapReplace)
}

// NewEntrant returns the entrant of a delivered slot. All shards of a slot share one place, so the
// entrant is the whole slot. If the job was deleted (v.Entry is nil), the slot has a record:
// otherwise Decide has cancelled it before it asks the lock.
func NewEntrant(d Delivery, v View) Entrant {
	policy, places := job.OverlapQueue, 0
	if v.Entry != nil {
		policy, places = v.Entry.Job.WithDefaults().Overlap, v.Entry.Job.Places()
	}
	at := d.Slot.At
	if at.IsZero() {
		at = d.Published
	}
	late := d.CaughtUp || d.Backfill || d.Offer > 0 || d.Slot.Token != ""
	begun := v.Record != nil && len(v.Record.Attempts) > 0 || v.Whole.Record != nil
	return Entrant{
		LockSlot: LockSlot{Slot: d.Slot.Whole(), At: at.UTC(), OnTime: !late && !begun, Since: v.Now.UTC()},
		Policy:   policy, Places: places,
	}
}

// Enter decides about an entrant. The verdict takes effect when the caller has stored next. ended
// holds, for slots of the lock, whether they have an outcome. If Enter needs this for further
// slots, it returns only ask: the caller looks up these slots and calls Enter again.
func (l Lock) Enter(e Entrant, ended map[job.Slot]bool) (next Lock, verdict Admission, ask []LockSlot) {
	l = l.without(func(s LockSlot) bool { return ended[s.Slot] })
	if stay, in := l.Stay(e.Slot); in {
		e.At = stay.At // another message of the slot may have another publication time; its turn does not change
	}
	held := find(l.Holders, e.Slot)
	holds := held >= 0
	if e.Policy == job.OverlapReplace && holds && l.Holders[held].OnTime {
		if i := slices.IndexFunc(l.Waiting, func(w LockSlot) bool { return w.OnTime && w.after(e.LockSlot) }); i >= 0 {
			if _, known := ended[l.Waiting[i].Slot]; !known { // it may have been cancelled, or have expired
				return Lock{}, Admission{}, l.Waiting[i : i+1]
			}
			return l, Admission{Kind: AdmissionReplaced, InWay: l.Waiting[i].Slot}, nil
		}
	}
	if holds || e.Places == 0 && len(l.Holders)+len(l.Waiting) == 0 {
		return l, Admission{Kind: AdmissionGranted}, nil
	}
	e.Places = max(1, e.Places)
	if e.supersedes() && e.At.Before(l.Newest) {
		return l, Admission{Kind: AdmissionSkipped, InWay: l.newestSlot(e)}, nil
	}
	ahead := slices.DeleteFunc(slices.Clone(l.Waiting), func(w LockSlot) bool {
		return w.Slot == e.Slot || w.after(e.LockSlot) || e.supersedes() && w.OnTime
	})
	free := e.Places - len(l.Holders)
	if len(ahead) >= free {
		if ask = unknown(l.Holders, ahead, free, ended); len(ask) > 0 {
			return Lock{}, Admission{}, ask
		}
		return l.queueOrSkip(e, ahead, free, ended)
	}
	next = l.accept(e)
	next.Holders = append(next.Holders, e.LockSlot)
	return next, Admission{Kind: AdmissionGranted}, nil
}

// queueOrSkip decides about an entrant for which no place is free.
func (l Lock) queueOrSkip(e Entrant, ahead []LockSlot, free int, ended map[job.Slot]bool) (Lock, Admission, []LockSlot) {
	// A slot is skipped only because of an older slot. If no worker was ready for a while, a
	// newer slot may have acquired the place first. Then the older slot waits for its turn.
	if e.Policy == job.OverlapSkip && e.OnTime {
		inWay := append(slices.Clone(l.Holders), ahead...)
		if i := slices.IndexFunc(inWay, func(s LockSlot) bool { return !s.after(e.LockSlot) }); i >= 0 {
			if _, known := ended[inWay[i].Slot]; !known { // a waiting slot may have been cancelled
				return Lock{}, Admission{}, inWay[i : i+1]
			}
			return l, Admission{Kind: AdmissionSkipped, InWay: inWay[i].Slot}, nil
		}
	}
	verdict := Admission{Kind: AdmissionQueued, Ahead: len(ahead)}
	if e.Policy == job.OverlapReplace && e.OnTime && free <= 0 {
		verdict.Displaces = l.oldestBefore(e)
	}
	if find(l.Waiting, e.Slot) >= 0 {
		return l, verdict, nil
	}
	next := l.accept(e)
	next.Waiting = append(next.Waiting, e.LockSlot)
	slices.SortStableFunc(next.Waiting, order)
	if len(next.Waiting) > MaxLockWaiting {
		next.Waiting = next.Waiting[:MaxLockWaiting]
		if find(next.Waiting, e.Slot) < 0 {
			return l, Admission{Kind: AdmissionCrowded}, nil
		}
	}
	return next, verdict, nil
}

// oldestBefore returns the holder that the entrant replaces, or the zero slot. It is the oldest
// holder that is OnTime and older than the entrant. Other holders, such as triggered runs, are not
// replaced: if a job is due every few seconds, they could never complete.
func (l Lock) oldestBefore(e Entrant) (oldest job.Slot) {
	var first LockSlot
	for _, h := range l.Holders {
		if h.OnTime && e.after(h) && (oldest == job.Slot{} || first.after(h)) {
			first, oldest = h, h.Slot
		}
	}
	return oldest
}

// Leave removes a slot from the lock and gives free places to waiting slots. It returns those
// slots in woken.
func (l Lock) Leave(s job.Slot, places int) (next Lock, woken []LockSlot) {
	next = l.without(func(o LockSlot) bool { return o.Slot == s })
	woken = next.Next(places)
	next.Holders = append(next.Holders, woken...)
	next.Waiting = next.Waiting[len(woken):]
	return next, woken
}

// Next returns the first waiting slots, as many as there are free places.
func (l Lock) Next(places int) []LockSlot {
	return l.Waiting[:min(max(max(1, places)-len(l.Holders), 0), len(l.Waiting))]
}

// Admits reports whether a slot in the lock holds a place, or would get one if it asked.
func (l Lock) Admits(s job.Slot, places int) bool {
	return l.Holds(s) || find(l.Next(places), s) >= 0
}

// Holds reports whether the slot holds a place.
func (l Lock) Holds(s job.Slot) bool { return find(l.Holders, s) >= 0 }

// Has reports whether the slot holds a place or waits for one.
func (l Lock) Has(s job.Slot) bool { return l.Holds(s) || find(l.Waiting, s) >= 0 }

// Stay returns the slot's element of the lock, and false if the slot is not in the lock.
func (l Lock) Stay(s job.Slot) (LockSlot, bool) {
	for _, slots := range [][]LockSlot{l.Holders, l.Waiting} {
		if i := find(slots, s); i >= 0 {
			return slots[i], true
		}
	}
	return LockSlot{}, false
}

// Renewed returns the lock with LockSlot.Since of the slot set to since, if the slot is in the lock.
// This begins a new stay: what a worker has read about the earlier stay does not apply to it.
func (l Lock) Renewed(s job.Slot, since time.Time) Lock {
	l.Holders, l.Waiting = slices.Clone(l.Holders), slices.Clone(l.Waiting)
	for _, slots := range [][]LockSlot{l.Holders, l.Waiting} {
		if i := find(slots, s); i >= 0 {
			slots[i].Since = since.UTC()
		}
	}
	return l
}

// Same reports whether two locks have the same slots and Newest.
func (l Lock) Same(o Lock) bool {
	same := func(a, b LockSlot) bool { return a.Slot == b.Slot }
	return slices.EqualFunc(l.Holders, o.Holders, same) && slices.EqualFunc(l.Waiting, o.Waiting, same) && l.Newest.Equal(o.Newest)
}

// without returns a copy of the lock without the slots for which gone returns true. The copy
// shares no slices with l.
func (l Lock) without(gone func(LockSlot) bool) Lock {
	l.Holders = slices.DeleteFunc(slices.Clone(l.Holders), gone)
	l.Waiting = slices.DeleteFunc(slices.Clone(l.Waiting), gone)
	return l
}

// accept returns the lock with Newest updated, and without the waiting slots that are the entrant
// or that the entrant replaces. It changes the array of l.Waiting.
func (l Lock) accept(e Entrant) Lock {
	if e.supersedes() && e.At.After(l.Newest) {
		l.Newest = e.At
	}
	l.Waiting = slices.DeleteFunc(l.Waiting, func(w LockSlot) bool {
		return w.Slot == e.Slot || e.supersedes() && w.OnTime
	})
	return l
}

// newestSlot returns the slot at l.Newest, because of which an older entrant is refused.
func (l Lock) newestSlot(e Entrant) job.Slot {
	for _, s := range slices.Concat(l.Holders, l.Waiting) {
		if s.At.Equal(l.Newest) {
			return s.Slot
		}
	}
	return job.NewSlot(e.Slot.Job, l.Newest)
}

// unknown returns the slots that are not in ended, but whose outcome must be known before an
// entrant is refused. If no place is free, these are holders. Otherwise these are the waiting slots
// ahead of the entrant.
func unknown(holders, ahead []LockSlot, free int, ended map[job.Slot]bool) []LockSlot {
	inWay := holders
	if free > 0 {
		inWay = ahead
	}
	return slices.DeleteFunc(slices.Clone(inWay), func(s LockSlot) bool { _, known := ended[s.Slot]; return known })
}

func find(slots []LockSlot, s job.Slot) int {
	return slices.IndexFunc(slots, func(l LockSlot) bool { return l.Slot == s })
}

func (s LockSlot) after(o LockSlot) bool { return order(s, o) > 0 }

func order(a, b LockSlot) int {
	return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Slot.ID(), b.Slot.ID()))
}

type lockWire struct {
	V       int            `json:"v"`
	Job     string         `json:"job"`
	Holders []lockSlotWire `json:"holders"`
	Waiting []lockSlotWire `json:"waiting,omitempty"`
	Newest  time.Time      `json:"newest,omitzero"`
	Nonce   string         `json:"nonce"`
}

type lockSlotWire struct {
	ID     string    `json:"id"`
	At     time.Time `json:"at"`
	OnTime bool      `json:"on_time,omitempty"`
	Since  time.Time `json:"since"`
}

// MarshalJSON returns the value of the key lock.<job>. The result is that of encoding/json for
// lockWire, but it takes a fraction of the time. Each guarded slot writes its lock once or twice.
func (l Lock) MarshalJSON() ([]byte, error) {
	return l.AppendJSON(make([]byte, 0, 160+120*(len(l.Holders)+len(l.Waiting))))
}

// AppendJSON appends what MarshalJSON returns.
func (l Lock) AppendJSON(b []byte) ([]byte, error) {
	o := appendSlots(codec.Object(b).Open().Number("v", codec.Version).Text("job", l.Job), "holders", l.Holders)
	if len(l.Waiting) > 0 {
		o = appendSlots(o, "waiting", l.Waiting)
	}
	o = o.TimeIf("newest", l.Newest).Text("nonce", l.Nonce).End()
	if len(l.Extra) == 0 {
		return o, nil
	}
	whole, err := codec.WithExtra(o[len(b):], l.Extra)
	return append(b, whole...), err
}

func appendSlots(o codec.Object, name string, slots []LockSlot) codec.Object {
	o = append(o.Name(name), '[')
	for i, s := range slots {
		if i > 0 {
			o = append(o, ',')
		}
		o = o.Open().Text("id", s.Slot.ID()).Time("at", s.At).TrueIf("on_time", s.OnTime).Time("since", s.Since).End()
	}
	return append(o, ']')
}

// DecodeLock decodes the value of a key lock.<job>. A lock that names a slot of another job is
// invalid.
func DecodeLock(data []byte) (Lock, error) {
	var w lockWire
	extra, err := codec.DecodeBounded("lock", data, &w, func(b *codec.Bounds) {
		b.Names("job", w.Job)
		b.Length("holders", len(w.Holders), job.MaxConcurrency)
		b.Length("waiting", len(w.Waiting), MaxLockWaiting)
		b.Times("newest", &w.Newest)
		b.Words("nonce", w.Nonce)
		for _, slots := range [][]lockSlotWire{w.Holders, w.Waiting} {
			for i := range slots {
				b.Times("slot", &slots[i].At, &slots[i].Since)
			}
		}
	})
	if err != nil {
		return Lock{}, err
	}
	l := Lock{Job: w.Job, Newest: w.Newest, Nonce: w.Nonce, Extra: extra}
	for _, part := range []struct {
		from []lockSlotWire
		to   *[]LockSlot
	}{{w.Holders, &l.Holders}, {w.Waiting, &l.Waiting}} {
		for _, s := range part.from {
			slot, err := job.ParseSlotID(s.ID)
			if err != nil {
				return Lock{}, err
			}
			if slot.Job != l.Job { // a login with write access to one job's lock must not replace slots of another job
				return Lock{}, fmt.Errorf("%w lock of job %q: it names slot %q", job.ErrInvalid, codec.Clip(l.Job), codec.Clip(s.ID))
			}
			*part.to = append(*part.to, LockSlot{slot, s.At, s.OnTime, s.Since})
		}
	}
	return l, nil
}

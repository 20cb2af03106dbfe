package core

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/job"
)

// MaxLockWaiting is how many slots of one job wait in its lock's value; more wait
// beside it, in no order, and try again.
const MaxLockWaiting = 100

// Lock is the value of lock.<job> in the state bucket: which slots hold the places
// of a job whose slots may not all run beside each other, and which wait for one.
//
// Invariants:
//   - A slot holds its place from before its first claim until its outcome is in
//     the ledger: retries, takeovers and the time between them included. Only its
//     record, read at the leader, says that it has ended; a dead owner says nothing.
//   - It is written by Create and by Update at a revision only, never deleted: a
//     writer who slept cannot take away what was given to another meanwhile.
//   - There are never more holders than places, but for a job whose places were
//     reduced by an edit.
type Lock struct {
	Job     string
	Holders []LockSlot

	// Waiting is in the order of LockSlot.At, at most MaxLockWaiting of them.
	Waiting []LockSlot

	// Newest is the newest slot published on time that has come here under
	// OverlapLatest or OverlapReplace: older ones are too late.
	Newest time.Time

	Nonce string
	Extra codec.Extra
}

// LockSlot is one slot in a lock.
type LockSlot struct {
	Slot job.Slot

	// At is the slot's place in the order: its instant, of a triggered run the
	// publication of the message that brought it into the lock.
	At time.Time

	// OnTime says that it was published on time, so that a newer one may displace
	// it by its job's policy.
	OnTime bool

	// Since is when it came in, by the corrected clock of who wrote it. A slot that is
	// reopened may come in again: the two stays are told apart by this.
	Since time.Time
}

// Entrant is a slot that asks for a place.
type Entrant struct {
	LockSlot
	Policy job.Overlap

	// Places is how many slots of the job may run at once. 0: the job was deleted, and
	// nobody knows: the slot goes on as it is if there is nobody in the lock, and else
	// as if it was one.
	Places int
}

// InLine reports whether the entrant waits for its turn however many do: it is not
// skipped, and displaces nothing.
func (e Entrant) InLine() bool {
	return !e.OnTime || e.Policy == job.OverlapQueue || e.Policy == job.OverlapAllow
}

// PlaceKind is what a lock says to an entrant.
type PlaceKind int

const (
	// PlaceUnasked: nobody has asked yet.
	PlaceUnasked PlaceKind = iota
	// PlaceHeld: it has a place, once the lock that says so is stored.
	PlaceHeld
	// PlaceWaits: it stands in the lock, and has its turn later.
	PlaceWaits
	// PlaceCrowded: more wait than the lock holds; it is to try again.
	PlaceCrowded
	// PlaceBarred: by its policy it is left out; Place.InWay was in its way.
	PlaceBarred
	// PlaceDisplaced: by its policy it is to end; Place.InWay came after it.
	PlaceDisplaced
)

// Place is a lock's answer.
type Place struct {
	Kind PlaceKind

	// InWay is the slot that PlaceBarred and PlaceDisplaced speak of.
	InWay job.Slot

	// Ahead is how many slots that wait have their turn before this one.
	Ahead int

	// Displaces is the holder that has to end for this slot; zero for none.
	Displaces job.Slot
}

// NewEntrant is the delivered slot as it asks for a place, as a whole: its shards
// do not get in each other's way. Of a deleted job (v.Entry is nil) it is one that has
// begun.
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

// Enter answers an entrant, and returns the lock as it has to be stored for the
// answer to hold. ended says of slots in the lock whether they have an outcome;
// those that must be known first are returned in ask, and nothing else then.
func (l Lock) Enter(e Entrant, ended map[job.Slot]bool) (next Lock, p Place, ask []LockSlot) {
	l = l.without(func(s LockSlot) bool { return ended[s.Slot] })
	if stay, in := l.Stay(e.Slot); in {
		e.At = stay.At // its messages may differ in when they were published; its place in the order is one
	}
	newest := e.Policy == job.OverlapLatest || e.Policy == job.OverlapReplace
	held := find(l.Holders, e.Slot)
	holds := held >= 0
	if e.Policy == job.OverlapReplace && holds && l.Holders[held].OnTime {
		if i := slices.IndexFunc(l.Waiting, func(w LockSlot) bool { return w.OnTime && w.after(e.LockSlot) }); i >= 0 {
			if _, known := ended[l.Waiting[i].Slot]; !known { // it may have been cancelled, or be past its deadline
				return Lock{}, Place{}, l.Waiting[i : i+1]
			}
			return l, Place{Kind: PlaceDisplaced, InWay: l.Waiting[i].Slot}, nil
		}
	}
	if holds || e.Places == 0 && len(l.Holders)+len(l.Waiting) == 0 {
		return l, Place{Kind: PlaceHeld}, nil
	}
	e.Places = max(1, e.Places)
	if newest && e.OnTime && e.At.Before(l.Newest) {
		return l, Place{Kind: PlaceBarred, InWay: l.newestSlot(e)}, nil
	}
	ahead := slices.DeleteFunc(slices.Clone(l.Waiting), func(w LockSlot) bool {
		return w.Slot == e.Slot || w.after(e.LockSlot) || newest && e.OnTime && w.OnTime
	})
	free := e.Places - len(l.Holders)
	if len(ahead) >= free {
		if ask = unknown(l.Holders, ahead, free, ended); len(ask) > 0 {
			return Lock{}, Place{}, ask
		}
		return l.refuse(e, ahead, free, ended)
	}
	next = l.remember(e)
	next.Waiting = next.unlisted(e)
	next.Holders = append(next.Holders, e.LockSlot)
	return next, Place{Kind: PlaceHeld}, nil
}

// refuse answers an entrant for which there is no place now.
func (l Lock) refuse(e Entrant, ahead []LockSlot, free int, ended map[job.Slot]bool) (Lock, Place, []LockSlot) {
	// A slot is skipped for one that came before it. After a gap in which no worker was
	// ready a newer one may have got the place first: the older one then has its turn.
	if e.Policy == job.OverlapSkip && e.OnTime {
		inWay := append(slices.Clone(l.Holders), ahead...)
		if i := slices.IndexFunc(inWay, func(s LockSlot) bool { return !s.after(e.LockSlot) }); i >= 0 {
			if _, known := ended[inWay[i].Slot]; !known { // it waits, and may have been cancelled
				return Lock{}, Place{}, inWay[i : i+1]
			}
			return l, Place{Kind: PlaceBarred, InWay: inWay[i].Slot}, nil
		}
	}
	p := Place{Kind: PlaceWaits, Ahead: len(ahead)}
	if e.Policy == job.OverlapReplace && e.OnTime && free <= 0 {
		p.Displaces = l.oldestBefore(e)
	}
	if find(l.Waiting, e.Slot) >= 0 {
		return l, p, nil
	}
	next := l.remember(e)
	next.Waiting = append(next.unlisted(e), e.LockSlot)
	slices.SortStableFunc(next.Waiting, order)
	if len(next.Waiting) > MaxLockWaiting {
		next.Waiting = next.Waiting[:MaxLockWaiting]
		if find(next.Waiting, e.Slot) < 0 {
			return l, Place{Kind: PlaceCrowded}, nil
		}
	}
	return next, p, nil
}

// oldestBefore is the holder that an entrant displaces, zero for none: the oldest of
// those that were published on time. A run that somebody asked for, or that catches
// up, has its turn: of a job that is due every few seconds it would never end.
func (l Lock) oldestBefore(e Entrant) (oldest job.Slot) {
	var first LockSlot
	for _, h := range l.Holders {
		if h.OnTime && e.after(h) && (oldest == job.Slot{} || first.after(h)) {
			first, oldest = h, h.Slot
		}
	}
	return oldest
}

// Leave takes a slot out of the lock, for good, and gives the places that are free
// to those that wait: they are woken.
func (l Lock) Leave(s job.Slot, places int) (next Lock, woken []job.Slot) {
	next = l.without(func(o LockSlot) bool { return o.Slot == s })
	for len(next.Holders) < max(1, places) && len(next.Waiting) > 0 {
		next.Holders = append(next.Holders, next.Waiting[0])
		woken = append(woken, next.Waiting[0].Slot)
		next.Waiting = next.Waiting[1:]
	}
	return next, woken
}

// Holds reports whether the slot holds a place.
func (l Lock) Holds(s job.Slot) bool { return find(l.Holders, s) >= 0 }

// Has reports whether the slot holds a place or waits for one.
func (l Lock) Has(s job.Slot) bool { return find(l.Holders, s) >= 0 || find(l.Waiting, s) >= 0 }

// Stay is the slot as it stands in the lock; false when it does not.
func (l Lock) Stay(s job.Slot) (LockSlot, bool) {
	for _, slots := range [][]LockSlot{l.Holders, l.Waiting} {
		if i := find(slots, s); i >= 0 {
			return slots[i], true
		}
	}
	return LockSlot{}, false
}

// Renewed is the lock with the slot, if it is there, in a stay that began at the
// given time: what was found out about an earlier one does not hold of it.
func (l Lock) Renewed(s job.Slot, since time.Time) Lock {
	l = l.without(func(LockSlot) bool { return false })
	for _, slots := range [][]LockSlot{l.Holders, l.Waiting} {
		if i := find(slots, s); i >= 0 {
			slots[i].Since = since.UTC()
		}
	}
	return l
}

// Same reports whether two locks say the same, whoever wrote them.
func (l Lock) Same(o Lock) bool {
	same := func(a, b LockSlot) bool { return a.Slot == b.Slot }
	return slices.EqualFunc(l.Holders, o.Holders, same) && slices.EqualFunc(l.Waiting, o.Waiting, same) && l.Newest.Equal(o.Newest)
}

// without is a copy that shares nothing with l.
func (l Lock) without(gone func(LockSlot) bool) Lock {
	l.Holders = slices.DeleteFunc(slices.Clone(l.Holders), gone)
	l.Waiting = slices.DeleteFunc(slices.Clone(l.Waiting), gone)
	return l
}

// remember notes the newest slot under a policy that lets only the newest run.
func (l Lock) remember(e Entrant) Lock {
	if newest := e.Policy == job.OverlapLatest || e.Policy == job.OverlapReplace; newest && e.OnTime && e.At.After(l.Newest) {
		l.Newest = e.At
	}
	return l
}

// unlisted are those that wait on beside the entrant: not itself, and by its
// policy not those that it displaces.
func (l Lock) unlisted(e Entrant) []LockSlot {
	newest := e.Policy == job.OverlapLatest || e.Policy == job.OverlapReplace
	return slices.DeleteFunc(l.Waiting, func(w LockSlot) bool {
		return w.Slot == e.Slot || newest && e.OnTime && w.OnTime
	})
}

// newestSlot is the one that an older entrant came too late for.
func (l Lock) newestSlot(e Entrant) job.Slot {
	for _, s := range slices.Concat(l.Holders, l.Waiting) {
		if s.At.Equal(l.Newest) {
			return s.Slot
		}
	}
	return job.NewSlot(e.Slot.Job, l.Newest)
}

// unknown are the slots that must be known to have no outcome before an entrant
// is refused: the holders when no place is free, else those that would go first.
func unknown(holders, ahead []LockSlot, free int, ended map[job.Slot]bool) (ask []LockSlot) {
	inWay := holders
	if free > 0 {
		inWay = ahead
	}
	for _, s := range inWay {
		if _, known := ended[s.Slot]; !known {
			ask = append(ask, s)
		}
	}
	return ask
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

// MarshalJSON writes the value of the key lock.<job>: what encoding/json makes of
// lockWire, in a fraction of the time. A guarded slot has it written once or twice.
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

// DecodeLock reads the value of a key lock.<job>. One that names a slot of another
// job is none.
func DecodeLock(data []byte) (Lock, error) {
	var w lockWire
	extra, err := codec.Decode("lock", data, &w)
	if err == nil {
		err = w.bound()
	}
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
			if slot.Job != l.Job { // or who may write one job's lock could have another's slots replaced
				return Lock{}, fmt.Errorf("%w lock of job %q: it names slot %q", job.ErrInvalid, codec.Clip(l.Job), codec.Clip(s.ID))
			}
			*part.to = append(*part.to, LockSlot{slot, s.At, s.OnTime, s.Since})
		}
	}
	return l, nil
}

func (w *lockWire) bound() error {
	b := codec.Bounds{What: "lock"}
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
	return b.Err
}

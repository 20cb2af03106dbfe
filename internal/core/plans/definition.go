// Package plans holds what the registry stores of a job, and which of its slots are due: the
// definition with its past plans and its owner (definition.go), its pauses (pause.go),
// and the due slots with the catch-up policy (due.go). It is pure, like package core.
package plans

import (
	"bytes"
	"encoding/json"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/job"
)

// Definition is the registry's value for one job: the job, and enough of its past to compute
// the slots before an edit.
type Definition struct {
	Job job.Job `json:"job"`

	// Since is when the current plan came into force: the slots after it are computed from
	// it. Zero: the broker's timestamp of this entry, which its writer cannot know (see
	// Entry.Since).
	Since time.Time `json:"since,omitzero"`

	// Past holds the earlier plans, oldest first, up to maxPast.
	Past []PastPlan `json:"past,omitempty"`

	// Superseded holds the hashes of jobs that a later file or later code replaced, oldest
	// first, up to maxSuperseded. A node that starts does not apply one of them again, so that
	// an old version in a crash loop cannot revert an edit. A job that an operator replaced is
	// not among them: Owner protects the operator's edit, and after a release the job of the
	// file applies again.
	Superseded []string `json:"superseded,omitempty"`

	// Paused is true while no slot of the job is published. Only Pause and Resume change it,
	// Upsert does not.
	Paused bool `json:"paused,omitempty"`

	// Pauses holds when the job was paused, oldest first, up to maxPauses. In an Entry, the
	// last one is open if and only if Paused is true. If a pause begins or ends at the broker's
	// timestamp of the stored value, the value lacks that bound: its writer could not know it.
	Pauses []Window `json:"pauses,omitempty"`

	// Applied is true if an operator created the entry, so that an apply of another file may
	// prune it. Entries that a file or code created are never pruned.
	Applied bool `json:"applied,omitempty"`

	// Owner is OwnerFile, OwnerCode, OwnerOperator or OwnerReleased. Node wrote the entry.
	Owner string `json:"owner"`
	Node  string `json:"node"`

	// Nonce lets a writer recognise its own write.
	Nonce string `json:"nonce"`

	Extra codec.Extra `json:"-"`
}

// PastPlan is a plan and the slots it applies to: those after From, up to and including To. To is
// not stored, since it is the beginning of the next plan.
type PastPlan struct {
	From time.Time `json:"from"`
	To   time.Time `json:"-"`
	Plan job.Plan  `json:"plan"`
}

const (
	maxPast       = 20
	maxSuperseded = 50
)

// Entry is a definition with its place in the registry.
type Entry struct {
	Definition

	// Revision is the entry's sequence in the registry's stream. Each slot message carries it
	// as Cronce-Job-Revision.
	Revision uint64

	// Time is the broker's timestamp of the entry.
	Time time.Time
}

// Since returns when the current plan came into force.
func (e Entry) Since() time.Time {
	if e.Definition.Since.IsZero() {
		return e.Time
	}
	return e.Definition.Since
}

// Plans returns all plans of the entry, oldest first. To of the last one is zero.
func (e Entry) Plans() []PastPlan {
	return append(append([]PastPlan(nil), e.Past...), PastPlan{Plan: e.Job.Plan(), From: e.Since()})
}

// Change is the result of an Upsert.
type Change int

const (
	// Unchanged: the entry holds an equal job. Write nothing.
	Unchanged Change = iota
	// Changed: write the returned definition at the entry's revision.
	Changed
	// Superseded: a later edit has replaced this job. Write nothing, and log it.
	Superseded
	// Held: an operator has edited the job, and has not released it. Write nothing.
	Held
)

// Upsert returns the definition that replaces old (nil: no entry) when node applies the job on
// behalf of owner. A superseded job is applied only with force. Only an operator may replace an
// operator's edit.
func Upsert(old *Entry, j job.Job, owner, node string, force bool) (Definition, Change, error) {
	j = j.WithDefaults()
	hash, err := j.Hash()
	if err != nil {
		return Definition{}, Unchanged, err
	}
	if old == nil {
		return Definition{Job: j, Applied: owner == OwnerOperator, Owner: owner, Node: node}, Changed, nil
	}
	oldHash, err := old.Job.Hash()
	switch {
	case err != nil:
		return Definition{}, Unchanged, err
	case hash == oldHash:
		return old.Definition, Unchanged, nil
	case old.Owner == OwnerOperator && owner != OwnerOperator:
		return old.Definition, Held, nil
	}
	next := old.Definition
	next.Superseded = nil
	for _, h := range old.Definition.Superseded {
		if h == hash && !force {
			return old.Definition, Superseded, nil
		}
		if h != hash {
			next.Superseded = append(next.Superseded, h)
		}
	}
	if owner != OwnerOperator {
		next.Superseded = codec.Last(append(next.Superseded, oldHash), maxSuperseded)
	}
	next.Job, next.Owner, next.Node = j, owner, node
	next.Since = old.Since()
	if !samePlan(old.Job.Plan(), j.Plan()) {
		// The new plan begins, and the old one ends, at the broker's timestamp of the
		// new entry. DecodeEntry fills it in.
		next.Since = time.Time{}
		next.Past = codec.Last(old.Plans(), maxPast)
	}
	return next, Changed, nil
}

// samePlan reports whether the plans have the same JSON.
func samePlan(a, b job.Plan) bool {
	wa, errA := json.Marshal(a)
	wb, errB := json.Marshal(b)
	return errA == nil && errB == nil && bytes.Equal(wa, wb)
}

type definitionMembers Definition // without methods

type definitionWire struct {
	V int `json:"v"`
	definitionMembers
}

// MarshalJSON writes the registry's value.
func (d Definition) MarshalJSON() ([]byte, error) {
	d.Pauses = slices.Clone(d.Pauses)
	for i, p := range d.Pauses {
		d.Pauses[i] = Window{p.From.UTC(), p.To.UTC()}
	}
	return codec.Encode(definitionWire{codec.Version, definitionMembers(d)}, d.Extra)
}

// DecodeEntry reads a value of the registry. revision and at are the broker's revision and
// timestamp of the value.
func DecodeEntry(data []byte, revision uint64, at time.Time) (Entry, error) {
	var d EntryDecoder
	return d.Entry(data, revision, at)
}

// EntryDecoder does what DecodeEntry does, but faster if there are many entries. The zero value
// is ready for use. It is safe for concurrent use.
type EntryDecoder struct {
	Parser

	strict sync.Pool // of *codec.Strict
}

// Entry does what DecodeEntry does.
func (c *EntryDecoder) Entry(data []byte, revision uint64, at time.Time) (Entry, error) {
	var w definitionWire
	extra, err := c.decode(data, &w)
	if err == nil {
		err = w.bound()
	}
	if err != nil {
		return Entry{}, err
	}
	w.Extra = extra
	e := Entry{Revision: revision, Time: at.UTC(), Definition: Definition(w.definitionMembers)}
	for i := range e.Past {
		if i+1 < len(e.Past) {
			e.Past[i].To = e.Past[i+1].From
		} else {
			e.Past[i].To = e.Since()
		}
	}
	e.settlePauses()
	return e, c.Validate(e.Job)
}

// bound does not check the job, which Parser.Validate checks.
func (w *definitionWire) bound() error {
	b := codec.Bounds{What: "job definition"}
	b.Times("since", &w.Since)
	b.Length("past", len(w.Past), maxPast)
	for i := range w.Past {
		b.Times("past.from", &w.Past[i].From)
	}
	b.Length("superseded", len(w.Superseded), maxSuperseded)
	b.Words("superseded", w.Superseded...)
	b.Length("pauses", len(w.Pauses), maxPauses)
	for i := range w.Pauses {
		b.Times("pauses", &w.Pauses[i].From, &w.Pauses[i].To)
	}
	b.Words("owner", w.Owner)
	b.Words("node", w.Node)
	b.Words("nonce", w.Nonce)
	return b.Err
}

// decode does what codec.Decode does, and reuses the decoder.
func (c *EntryDecoder) decode(data []byte, w *definitionWire) (codec.Extra, error) {
	s, ok := c.strict.Get().(*codec.Strict)
	if !ok {
		s = codec.NewStrict()
	}
	if s.Read(data, w) {
		c.strict.Put(s)
		return nil, nil
	}
	return codec.DecodeLoosely("job definition", data, w)
}

// PlanAt returns the plan that was in force at the instant, and false if there was none.
func (e Entry) PlanAt(at time.Time) (PastPlan, bool) {
	for i := range e.Past { // does not copy e.Past: each slot calls this several times
		if p := &e.Past[i]; at.After(p.From) && (p.To.IsZero() || !at.After(p.To)) {
			return *p, true
		}
	}
	if since := e.Since(); at.After(since) {
		return PastPlan{Plan: e.Job.Plan(), From: since}, true
	}
	return PastPlan{}, false
}

// Slots yields the slots of all plans of the entry after one instant, up to and including another,
// in ascending order. It leaves out plans that cannot be computed.
func (e Entry) Slots(after, until time.Time) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		for _, p := range e.Plans() {
			s, err := job.ParseSchedule(e.Job.Name, p.Plan)
			if err != nil {
				continue
			}
			for at := range s.Between(Later(after, p.From), UpTo(until, p.To)) {
				if !yield(at) {
					return
				}
			}
		}
	}
}

// PlanOf returns the plan in force when a message was stored. A work queue may hold messages
// that are older than the job; they belong to its first plan.
func (e Entry) PlanOf(stored time.Time) job.Plan {
	if p, ok := e.PlanAt(stored); ok {
		return p.Plan
	}
	return e.Plans()[0].Plan
}

// OnPlans returns the plans that have On, oldest first. To of the last one is zero if it is the
// current plan.
func (e Entry) OnPlans() []PastPlan {
	return slices.DeleteFunc(e.Plans(), func(p PastPlan) bool { return p.Plan.On.IsZero() })
}

// ChainedAt reports whether the plan in force at an instant has After.
func (e Entry) ChainedAt(at time.Time) bool {
	p, ok := e.PlanAt(at)
	return ok && len(p.Plan.After) > 0
}

// IsChained reports whether a slot of the job runs after slots of other jobs and has its instant from
// them, and not from a schedule that was in force at that instant. A triggered run has no instant, so
// IsChained is false even if the run comes after others.
func (e Entry) IsChained(slot job.Slot) bool {
	p, ok := e.PlanAt(slot.At)
	return slot.Token == "" && len(e.Job.After) > 0 && !(ok && p.Plan.Scheduled())
}

// The values of Definition.Owner: the origin of the last edit of a job. Files and code do not
// replace an edit of an operator.
const (
	OwnerFile     = "file"
	OwnerCode     = "code"
	OwnerOperator = "operator"

	// OwnerReleased: an operator has edited the job and released it. The next file or code
	// with a different job replaces the edit.
	OwnerReleased = "released"
)

// ReleaseHold returns the definition that replaces e so that files and code may change its job
// again. The job stays as it is until a node with a different one starts. It returns false if no
// operator holds the job. The caller sets a nonce, and writes at e.Revision.
func ReleaseHold(e Entry, node string) (Definition, bool) {
	d := e.revised(node)
	d.Owner = OwnerReleased
	return d, e.Owner == OwnerOperator
}

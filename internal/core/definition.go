package core

import (
	"bytes"
	"encoding/json"
	"sync"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/job"
)

// Definition is what the registry holds for one job: the job, and enough of its
// past to say which slots there were before an edit.
type Definition struct {
	Job job.Job

	// Since is when the current plan came into force; slots after it belong to
	// it. Zero: the broker's timestamp of this very entry, which the writer
	// cannot know (see Entry.Since).
	Since time.Time

	// Past holds the plans before the current one, oldest first, at most
	// maxPast.
	Past []PastPlan

	// Superseded holds the hashes of contents that an edit of a file or of code
	// replaced, oldest first, at most maxSuperseded. A start never applies one of
	// them again: an old pod in a crash loop must not revert an edit. What an
	// operator replaced is not among them: it is kept away by the operator's
	// ownership, and has to come back when that is released.
	Superseded []string

	// Paused says that nothing of the job is published. It is state beside the
	// definition: no upsert touches it (see Pause and Resume).
	Paused bool

	// Pauses holds when the job was paused, oldest first, the newest maxPauses.
	// The last one is open if and only if Paused, in an Entry; a writer leaves
	// out the bound that is the broker's timestamp of the entry it writes.
	Pauses []Window

	// Applied says that an operator created the entry: an apply with another file
	// may prune it. What a file or code created never is, whoever edited it since.
	Applied bool

	// Owner is one of the constants; Node is who wrote the entry.
	Owner, Node string

	// Nonce tells a writer its own write from another's.
	Nonce string

	Extra codec.Extra
}

// PastPlan is a plan that was in force for slots after From, up to and including
// To.
type PastPlan struct {
	Plan     job.Plan
	From, To time.Time
}

const (
	maxPast       = 20
	maxSuperseded = 50
)

// Entry is a definition as it stands in the registry.
type Entry struct {
	Definition

	// Revision is the entry's sequence in the registry's stream; it travels with
	// every slot as Cronce-Job-Revision.
	Revision uint64

	// Time is the broker's timestamp of the entry.
	Time time.Time
}

// Since is when the current plan came into force: slots after it belong to it.
func (e Entry) Since() time.Time {
	if e.Definition.Since.IsZero() {
		return e.Time
	}
	return e.Definition.Since
}

// Plans returns every plan of the entry, oldest first; the last has a zero To.
func (e Entry) Plans() []PastPlan {
	return append(append([]PastPlan(nil), e.Past...), PastPlan{Plan: e.Job.Plan(), From: e.Since()})
}

// Change is what an upsert does to the registry.
type Change int

const (
	// Unchanged: the entry has this content already; nothing is to be written.
	Unchanged Change = iota
	// Changed: the returned definition is to be written at the entry's revision.
	Changed
	// Superseded: this content was replaced by a later edit; nothing is to be
	// written, and the caller should say so.
	Superseded
	// Held: an operator's edit stands over files and code until released.
	Held
)

// Upsert computes what replaces old (nil: no entry) when job is applied by
// owner on node. It is pure. A content that an edit replaced comes back only with
// force; over an operator's edit, nothing but another one's.
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
		// The new plan begins with the broker's timestamp of the entry that
		// brings it; the old one's To is that same instant, which the next
		// reader fills in (see Decode).
		next.Since = time.Time{}
		next.Past = codec.Last(append(append([]PastPlan(nil), old.Past...), PastPlan{Plan: old.Job.Plan(), From: old.Since()}), maxPast)
	}
	return next, Changed, nil
}

// samePlan compares what would be written.
func samePlan(a, b job.Plan) bool {
	wa, errA := json.Marshal(a)
	wb, errB := json.Marshal(b)
	return errA == nil && errB == nil && bytes.Equal(wa, wb)
}

type definitionWire struct {
	V          int        `json:"v"`
	Job        job.Job    `json:"job"`
	Since      time.Time  `json:"since,omitzero"`
	Past       []pastWire `json:"past,omitempty"`
	Superseded []string   `json:"superseded,omitempty"`
	Paused     bool       `json:"paused,omitempty"`
	Pauses     []window   `json:"pauses,omitempty"`
	Applied    bool       `json:"applied,omitempty"`
	Owner      string     `json:"owner"`
	Node       string     `json:"node"`
	Nonce      string     `json:"nonce"`
}

type pastWire struct {
	From time.Time `json:"from"`
	Plan job.Plan  `json:"plan"`
}

type window struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to,omitzero"`
}

// MarshalJSON writes the registry's value. The end of a past plan is not
// written: it is the beginning of the next one.
func (d Definition) MarshalJSON() ([]byte, error) {
	w := definitionWire{codec.Version, d.Job, d.Since, nil, d.Superseded, d.Paused, nil, d.Applied, d.Owner, d.Node, d.Nonce}
	for _, p := range d.Pauses {
		w.Pauses = append(w.Pauses, window{p.From.UTC(), p.To.UTC()})
	}
	for _, p := range d.Past {
		w.Past = append(w.Past, pastWire{p.From, p.Plan})
	}
	return codec.Encode(w, d.Extra)
}

// DecodeEntry reads a registry value with the revision and timestamp that the
// broker gave it.
func DecodeEntry(data []byte, revision uint64, at time.Time) (Entry, error) {
	var d EntryDecoder
	return d.Entry(data, revision, at)
}

// EntryDecoder decodes entries as DecodeEntry does, faster if there are many. The zero
// value is ready for use. It is safe for concurrent use.
type EntryDecoder struct {
	Parser

	strict sync.Pool // of *strict
}

// Entry is DecodeEntry.
func (c *EntryDecoder) Entry(data []byte, revision uint64, at time.Time) (Entry, error) {
	var w definitionWire
	extra, err := c.decode(data, &w)
	if err == nil {
		err = w.bound()
	}
	if err != nil {
		return Entry{}, err
	}
	e := Entry{Revision: revision, Time: at.UTC(), Definition: Definition{
		Job: w.Job, Since: w.Since, Superseded: w.Superseded, Paused: w.Paused, Applied: w.Applied,
		Owner: w.Owner, Node: w.Node, Nonce: w.Nonce, Extra: extra,
	}}
	for _, p := range w.Past {
		e.Past = append(e.Past, PastPlan{Plan: p.Plan, From: p.From})
	}
	for i := range e.Past {
		if i+1 < len(e.Past) {
			e.Past[i].To = e.Past[i+1].From
		} else {
			e.Past[i].To = e.Since()
		}
	}
	for _, p := range w.Pauses {
		e.Pauses = append(e.Pauses, Window(p))
	}
	e.settlePauses()
	return e, c.Validate(e.Job)
}

// bound leaves the job, but for its times, to Job.Validate.
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

// decode is the function decode for definitions, of which it reads many.
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

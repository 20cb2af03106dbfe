package job

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
)

// Job is a name, what starts it, a payload and policies. The zero value of every
// field but Name and Schedule is its default. A Job is plain data: nothing here
// runs anything, and the registry on the broker holds just this.
type Job struct {
	// Name is the job's identity: 1 to 64 characters of A-Z a-z 0-9 _ -.
	// Required.
	Name string

	// Schedule says when: five cron fields, six with seconds first, @hourly and
	// the like, "@every 90s" or "@at 2027-01-01T00:00:00Z". Required, unless After
	// or On says what starts the job: one of the three.
	Schedule string

	// After names jobs: when their slots of one instant (or token) have all
	// succeeded, this one's of the same has its turn. At most MaxAfter.
	After []string

	// On has each message of a stream be one run, with its data as payload.
	On On

	// Timezone is an IANA name. Empty: UTC.
	Timezone string

	// Spread delays each slot's due time, not its instant, by a stable hash of
	// the job's name below this. Whole seconds, at most 24 h. Zero: none.
	Spread time.Duration

	// From is the first instant that may be a slot, Until the first that may
	// not any more. Zero: no bound.
	From, Until time.Time

	// Exclude takes slots away: dates ("2026-12-25", in the job's zone) or cron
	// expressions (a slot that one of them matches is none).
	Exclude []string

	// DSTGap and DSTOverlap say what becomes of a wall time that does not
	// exist, or comes twice. Empty: GapAfter, RepeatFirst.
	DSTGap     GapPolicy
	DSTOverlap RepeatPolicy

	// Queue names the workers that may run the job. Empty: "default".
	Queue string

	// Payload is handed to the handler as it is: any JSON value, at most
	// MaxPayload bytes. Nil: none.
	Payload json.RawMessage

	// Timeout bounds one attempt. Zero: none.
	Timeout time.Duration

	// Deadline is how long after its due time (for a slot that was caught up or
	// backfilled: after its publication) a slot may still start for the first
	// time. Zero: none.
	Deadline time.Duration

	// Output is how much of what an attempt writes is kept in the slot's record:
	// the first so many bytes, at most MaxOutput. Zero: DefaultOutput.
	Output int

	Retry   Retry
	CatchUp CatchUp

	// Shards splits each slot into so many parts, which run beside each other and
	// are retried each for itself. The slot's outcome is theirs together. Zero and
	// 1: it is not split. At most MaxShards.
	Shards int

	// OnLeaseLost says what becomes of a handler whose node has had no word from
	// the broker for too long. Empty: LeaseLostCancel.
	OnLeaseLost LeaseLost

	// Overlap says what happens when a slot comes while another one of the job has
	// no outcome yet. Empty: OverlapSkip; OverlapAllow of a job that messages start
	// (On).
	Overlap Overlap

	// OnFailure is where to tell of a slot that has failed, or expired, OnMissed of
	// one that was missed. Nil: nowhere.
	OnFailure, OnMissed *Alert

	// Concurrency is how many slots of the job may be without an outcome after
	// their start, over the whole fleet, before Overlap applies to the next. Zero:
	// one; with OverlapAllow no limit. With OverlapAllow and a limit the slots
	// beyond it wait in their order. At most
	// MaxConcurrency.
	Concurrency int
}

// GapPolicy says what becomes of a wall-clock slot whose time the clocks skip.
type GapPolicy string

const (
	GapAfter GapPolicy = "after" // at the first instant after the gap
	GapSkip  GapPolicy = "skip"  // not at all
)

// RepeatPolicy says at which occurrence of a repeated wall time a wall-clock
// slot falls.
type RepeatPolicy string

const (
	RepeatFirst  RepeatPolicy = "first"
	RepeatSecond RepeatPolicy = "second"
	RepeatBoth   RepeatPolicy = "both"
)

// Retry says how often and how soon a failed attempt is repeated.
type Retry struct {
	// Attempts counts all starts, the first included, and those of workers that
	// died. Zero: 3. 1 is at-most-once: started at most one time.
	Attempts int

	// Backoff is the delay after the first failed attempt; it doubles, with
	// jitter, up to MaxBackoff. Zero: 1 s and 1 min.
	Backoff, MaxBackoff time.Duration
}

// LeaseLost says what becomes of a handler whose node can no longer prove that it
// is alive.
type LeaseLost string

const (
	// LeaseLostCancel ends its context in time, so that nobody ever runs beside it.
	LeaseLostCancel LeaseLost = "cancel"

	// LeaseLostFinish lets it run on. Its end is recorded when the broker is back,
	// unless somebody has taken the slot over meanwhile: then two have run.
	LeaseLostFinish LeaseLost = "finish"
)

// Overlap says what happens when a slot comes while another one of the same job
// has no outcome yet: it runs, waits for its next attempt, or lies with a worker
// that died and is yet to be taken over.
//
// The policies are about slots published on time. A slot that was caught up,
// backfilled, triggered or offered again is never skipped and displaces nothing:
// it waits in order, or a catch-up of ten would run one.
type Overlap string

const (
	OverlapSkip    Overlap = "skip"    // the new slot is skipped
	OverlapQueue   Overlap = "queue"   // it waits; slots run in the order of their instants
	OverlapLatest  Overlap = "latest"  // it waits; a newer one that comes meanwhile takes its place
	OverlapReplace Overlap = "replace" // the older one is cancelled if it was on time, and then it runs
	OverlapAllow   Overlap = "allow"   // both run
)

// Overlaps lists the policies.
func Overlaps() []Overlap {
	return []Overlap{OverlapSkip, OverlapQueue, OverlapLatest, OverlapReplace, OverlapAllow}
}

// CatchUpPolicy says which missed slots still run.
type CatchUpPolicy string

const (
	CatchUpLatest CatchUpPolicy = "latest" // the newest missed slot only
	CatchUpAll    CatchUpPolicy = "all"    // each, at most Max, the newest: a flood if Max is large
	CatchUpNone   CatchUpPolicy = "none"   // none
)

// CatchUp says what becomes of slots that nobody published in time.
type CatchUp struct {
	// Policy: empty is CatchUpLatest.
	Policy CatchUpPolicy

	// Within is how far back a missed slot may lie and still run. Zero, or more
	// than the namespace's horizon: the horizon.
	Within time.Duration

	// Max bounds CatchUpAll. Zero: 100. At most MaxCatchUp.
	Max int
}

// WithDefaults returns the job with its empty fields filled.
func (j Job) WithDefaults() Job {
	def(&j.Timezone, "UTC")
	def(&j.DSTGap, GapAfter)
	def(&j.DSTOverlap, RepeatFirst)
	def(&j.Queue, DefaultQueue)
	def(&j.Retry.Attempts, DefaultAttempts)
	def(&j.Retry.Backoff, DefaultBackoff)
	def(&j.Retry.MaxBackoff, max(DefaultMaxBackoff, j.Retry.Backoff))
	if !j.On.IsZero() {
		def(&j.Overlap, OverlapAllow)
	}
	def(&j.Overlap, OverlapSkip)
	def(&j.OnLeaseLost, LeaseLostCancel)
	if j.Shards == 1 {
		j.Shards = 0
	}
	def(&j.CatchUp.Policy, CatchUpLatest)
	def(&j.CatchUp.Max, DefaultCatchUpMax)
	return j
}

func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate checks every field and names all that are wrong, each with what would
// be right. Its errors wrap ErrInvalid.
func (j Job) Validate() error { return j.ValidateWith(ParseSchedule) }

// Guarded reports whether a slot of the job needs to be admitted by the job's lock.
func (j Job) Guarded() bool { return j.WithDefaults().Overlap != OverlapAllow || j.Concurrency > 0 }

// Places returns how many slots of the job may run at once: Concurrency, or one.
func (j Job) Places() int { return max(1, j.Concurrency) }

// Hash returns a digest of the job's content, the same for equal definitions.
func (j Job) Hash() (string, error) {
	data, err := json.Marshal(j)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8]), nil
}

// ValidateWith does what Validate does, but compiles the plan with parse: for a program that
// holds many jobs with equal plans.
func (j Job) ValidateWith(parse func(string, Plan) (*Schedule, error)) error {
	j = j.WithDefaults()
	errs := []error{codec.ValidateName("job", j.Name), codec.ValidateName("queue", j.Queue)}
	bad := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf("%w %s", ErrInvalid, fmt.Sprintf(format, args...)))
		}
	}
	if _, err := parse(j.Name, j.Plan()); err != nil {
		errs = append(errs, err)
	}
	bad(len(j.Payload) > MaxPayload, "payload: %d bytes, at most %d", len(j.Payload), MaxPayload)
	bad(len(j.Payload) > 0 && !json.Valid(j.Payload), "payload: it is not JSON")
	bad(j.Timeout < 0, "timeout %v: must not be negative", j.Timeout)
	bad(j.Output < 0 || j.Output > MaxOutput, "output: %d bytes, at most %d KiB", j.Output, MaxOutput>>10)
	bad(j.Deadline < 0, "deadline %v: must not be negative", j.Deadline)
	bad(j.Retry.Attempts < 1 || j.Retry.Attempts > MaxAttempts, "retry.attempts %d: 1 to %d", j.Retry.Attempts, MaxAttempts)
	bad(j.Retry.Backoff < 0, "retry.backoff %v: must not be negative", j.Retry.Backoff)
	bad(j.Retry.MaxBackoff < j.Retry.Backoff, "retry.max_backoff %v: must not be less than retry.backoff %v", j.Retry.MaxBackoff, j.Retry.Backoff)
	errs = append(errs, j.OnFailure.validate("on_failure"), j.OnMissed.validate("on_missed"))
	bad(!slices.Contains(Overlaps(), j.Overlap), "overlap %q: want skip, queue, latest, replace or allow", codec.Clip(string(j.Overlap)))
	bad(j.Shards < 0 || j.Shards > MaxShards, "shards %d: 1 to %d", j.Shards, MaxShards)
	bad(j.OnLeaseLost != LeaseLostCancel && j.OnLeaseLost != LeaseLostFinish, "on_lease_lost %q: want cancel or finish", codec.Clip(string(j.OnLeaseLost)))
	bad(j.Concurrency < 0 || j.Concurrency > MaxConcurrency, "concurrency %d: 1 to %d", j.Concurrency, MaxConcurrency)
	switch j.CatchUp.Policy {
	case CatchUpLatest, CatchUpAll, CatchUpNone:
	default:
		bad(true, "catch_up.policy %q: want latest, all or none", codec.Clip(string(j.CatchUp.Policy)))
	}
	bad(j.Plan().started() && j.CatchUp != CatchUp{CatchUpLatest, 0, DefaultCatchUpMax}, "catch_up: it is about a schedule, and this job has none (%s)", j.Plan().Start())
	bad(j.CatchUp.Within < 0, "catch_up.within %v: must not be negative", j.CatchUp.Within)
	bad(j.CatchUp.Max < 1 || j.CatchUp.Max > MaxCatchUp, "catch_up.max %d: 1 to %d", j.CatchUp.Max, MaxCatchUp)
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("job %q: %w", codec.Clip(j.Name), err)
	}
	return nil
}

// Plan is the part of a job that decides which slots exist. Two jobs of one name
// with equal plans have the same slots.
type Plan struct {
	Schedule, Timezone string
	Spread             time.Duration
	From, Until        time.Time
	Exclude            []string
	DSTGap             GapPolicy
	DSTOverlap         RepeatPolicy

	// After and On start the job in place of a schedule: see Job.
	After []string
	On    On

	// Shards is how many parts each slot has, zero for one: it decides which
	// messages there are.
	Shards int
}

// Plan returns the job's plan, defaults filled.
func (j Job) Plan() Plan {
	j = j.WithDefaults()
	return Plan{j.Schedule, j.Timezone, j.Spread, j.From, j.Until, j.Exclude, j.DSTGap, j.DSTOverlap, j.After, j.On, j.Shards}
}

// jobWire is a Job as it stands in the registry. Durations are Go's ("1m30s"),
// instants RFC 3339. Defaults are written out, so that a client in another
// language needs no table of them.
type jobWire struct {
	Name       string          `json:"name"`
	Queue      string          `json:"queue"`
	Payload    json.RawMessage `json:"payload,omitempty"`
	Timeout    codec.Duration  `json:"timeout,omitempty"`
	Deadline   codec.Duration  `json:"deadline,omitempty"`
	Attempts   int             `json:"attempts"`
	Backoff    codec.Duration  `json:"backoff"`
	MaxBackoff codec.Duration  `json:"max_backoff"`
	Overlap    Overlap         `json:"overlap"`
	Concurrent int             `json:"concurrency,omitempty"`
	LeaseLost  LeaseLost       `json:"on_lease_lost,omitempty"` // only finish is written
	CatchUp    CatchUpPolicy   `json:"catch_up"`
	Within     codec.Duration  `json:"catch_up_within,omitempty"`
	Max        int             `json:"catch_up_max"`
	Output     int             `json:"output,omitempty"`
	OnFailure  *Alert          `json:"on_failure,omitempty"`
	OnMissed   *Alert          `json:"on_missed,omitempty"`
	Plan       planWire        `json:"plan"`
}

type planWire struct {
	Schedule   string         `json:"schedule"` // empty: After or On
	After      []string       `json:"after,omitempty"`
	On         On             `json:"on,omitzero"`
	Timezone   string         `json:"timezone"`
	Spread     codec.Duration `json:"spread,omitempty"`
	From       time.Time      `json:"from,omitzero"`
	Until      time.Time      `json:"until,omitzero"`
	Exclude    []string       `json:"exclude,omitempty"`
	DSTGap     GapPolicy      `json:"dst_gap"`
	DSTOverlap RepeatPolicy   `json:"dst_overlap"`
	Shards     int            `json:"shards,omitempty"`
}

// MarshalJSON writes the job with its defaults filled.
func (j Job) MarshalJSON() ([]byte, error) {
	w, err := j.wire()
	if err != nil {
		return nil, err
	}
	return codec.Marshal(w)
}

// UnmarshalJSON is the inverse of MarshalJSON. Validate checks what it does not.
func (j *Job) UnmarshalJSON(data []byte) error {
	var w jobWire
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	err := w.Plan.bound()
	*j = w.job()
	return err
}

func (j Job) wire() (jobWire, error) {
	j = j.WithDefaults()
	finish := j.OnLeaseLost
	if finish == LeaseLostCancel {
		finish = "" // definitions written before there was a choice stay equal
	}
	payload, err := compact(j.Payload)
	return jobWire{
		j.Name, j.Queue, payload, codec.Duration(j.Timeout), codec.Duration(j.Deadline),
		j.Retry.Attempts, codec.Duration(j.Retry.Backoff), codec.Duration(j.Retry.MaxBackoff), j.Overlap, j.Concurrency, finish,
		j.CatchUp.Policy, codec.Duration(j.CatchUp.Within), j.CatchUp.Max, j.Output, j.OnFailure, j.OnMissed, j.Plan().wire(),
	}, err
}

func (w *jobWire) job() Job {
	p := w.Plan.plan()
	return Job{
		Name: w.Name, Queue: w.Queue, Payload: w.Payload,
		Timeout: time.Duration(w.Timeout), Deadline: time.Duration(w.Deadline),
		Retry:  Retry{w.Attempts, time.Duration(w.Backoff), time.Duration(w.MaxBackoff)},
		Output: w.Output, OnFailure: w.OnFailure, OnMissed: w.OnMissed,
		Overlap: w.Overlap, Concurrency: w.Concurrent, OnLeaseLost: w.LeaseLost,
		CatchUp:  CatchUp{w.CatchUp, time.Duration(w.Within), w.Max},
		Schedule: p.Schedule, Timezone: p.Timezone, Spread: p.Spread, From: p.From, Until: p.Until,
		Exclude: p.Exclude, DSTGap: p.DSTGap, DSTOverlap: p.DSTOverlap, After: p.After, On: p.On, Shards: p.Shards,
	}
}

// MarshalJSON writes the plan as it stands in the registry.
func (p Plan) MarshalJSON() ([]byte, error) { return codec.Marshal(p.wire()) }

// UnmarshalJSON is the inverse of MarshalJSON. ParseSchedule checks what it does not.
func (p *Plan) UnmarshalJSON(data []byte) error {
	var w planWire
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	err := w.bound()
	*p = w.plan()
	return err
}

// bound checks what ParseSchedule does not.
func (w *planWire) bound() error {
	b := codec.Bounds{What: "plan"}
	b.Times("from", &w.From)
	b.Times("until", &w.Until)
	b.Number("shards", w.Shards, 0, MaxShards)
	return b.Err
}

// wire has one spelling for equal plans: whoever compares two compares this.
func (p Plan) wire() planWire {
	return planWire{p.Schedule, some(p.After), p.On, p.Timezone, codec.Duration(p.Spread), p.From.UTC(), p.Until.UTC(), some(p.Exclude), p.DSTGap, p.DSTOverlap, p.Shards}
}

func (w planWire) plan() Plan {
	if w.Shards == 1 {
		w.Shards = 0 // one part is the whole slot
	}
	return Plan{w.Schedule, w.Timezone, time.Duration(w.Spread), w.From, w.Until, w.Exclude, w.DSTGap, w.DSTOverlap, w.After, w.On, w.Shards}
}

// some is a list that is nil when it is empty.
func some(list []string) []string {
	if len(list) == 0 {
		return nil
	}
	return list
}

// compact makes equal payloads equal bytes, so that indentation is no edit.
func compact(payload json.RawMessage) (json.RawMessage, error) {
	if len(payload) == 0 {
		return nil, nil
	}
	var b bytes.Buffer
	err := json.Compact(&b, payload)
	return b.Bytes(), err
}

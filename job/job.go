package job

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
)

// Job is the definition of a job: its name, what starts it, its payload and its policies. Name
// is required, and so is exactly one of Schedule, After and On. A job that runs only when it is
// triggered has the Schedule OnDemand. The zero value of every other field is its default. A Job
// is plain data, which the registry on the broker stores. The handler is not part of it: each
// process has its own handlers.
type Job struct {
	// Name identifies the job: 1 to 64 characters of A-Z a-z 0-9 _ -.
	Name string

	// Schedule is a cron expression of five fields, or of six with seconds first; a word
	// like @hourly; "@every 90s"; "@every 2w"; "@at 2027-01-01T00:00:00Z"; or OnDemand. See "Expressions"
	// in the package comment.
	Schedule string

	// After names up to MaxAfter other jobs. When their slots of one instant (or one token)
	// have all succeeded, this job's slot of the same instant is due.
	After []string

	// On starts one run for each message of a stream. The message's data is the payload.
	On On

	// Timezone is the IANA name of the zone in which Schedule and Exclude are read. Empty:
	// UTC.
	Timezone string

	// Spread delays the start of each slot, but does not change its instant. The delay is
	// less than Spread, and depends only on the job's name. Whole seconds, up to MaxSpread.
	// Zero: no delay.
	Spread time.Duration

	// From is the first instant that may be a slot; Until is after the last one. Zero: no
	// bound.
	From, Until time.Time

	// Exclude removes slots: those on a date ("2026-12-25", in the job's zone), and those
	// that match a cron expression.
	Exclude []string

	// DSTGap determines the slot of a wall-clock time that a clock change skips, DSTOverlap the
	// slots of one that occurs twice. Empty: GapAfter and RepeatFirst.
	DSTGap     GapPolicy
	DSTOverlap RepeatPolicy

	// Queue names the workers that may run the job, with the syntax of Name. Empty:
	// DefaultQueue.
	Queue string

	// Payload is passed to the handler. It is any JSON value of up to MaxPayload bytes. The
	// registry stores it without insignificant space, and keeps the digits of each number as
	// they are. Nil: none.
	Payload json.RawMessage

	// Timeout limits each attempt. Zero: no limit.
	Timeout time.Duration

	// Deadline limits how long after its due time a slot may start for the first time. For a
	// slot that was caught up, backfilled, started by other jobs or triggered to run at once, it
	// counts from the publication. A slot that has not started by then ends as Expired. Zero: no
	// limit.
	Deadline time.Duration

	// Output is how many bytes of an attempt's output the slot's record keeps, half of them from
	// its beginning and half from its end, up to MaxOutput. Zero: DefaultOutput. Some output is
	// always kept.
	Output int

	Retry   Retry
	CatchUp CatchUp

	// Shards splits each slot into shards that run in parallel and are retried
	// independently, up to MaxShards. The slot succeeds if all shards succeed. Zero or 1: it
	// is not split.
	Shards int

	// OnLeaseLost determines what happens to a handler whose node has lost contact with the
	// broker. Empty: LeaseLostCancel.
	OnLeaseLost LeaseLost

	// Overlap determines what happens to a slot that is due while an earlier one of the job
	// has no outcome. A triggered run waits for the earlier slot under all policies except
	// OverlapAllow. Empty: OverlapSkip, or OverlapAllow if the job has On.
	Overlap Overlap

	// OnFailure receives an alert for each slot that ends as Failed or Expired, OnMissed for
	// each that ends as Missed, OnSuccess for each that ends as Succeeded. OnRecovered receives
	// one for the first slot that succeeds after one that failed, expired, was missed, or caused
	// an alert of OnLate. Nil: none.
	OnFailure, OnMissed, OnSuccess, OnRecovered *Alert

	// OnLate receives an alert for each slot that has not started within LateAfter of its due
	// time, up to MaxLateAfter. Producers check twice a minute, so the alert may be half a
	// minute late. Only jobs with a Schedule may have it. Nil and zero: none.
	OnLate    *Alert
	LateAfter time.Duration

	// Heartbeat is called with GET after each slot that succeeds, so that a service outside,
	// such as healthchecks.io, notices if no more slots succeed. Headers are not allowed. A call
	// that fails is repeated for up to MaxHeartbeatAge. Nil: none.
	Heartbeat *AlertHTTP

	// Concurrency limits how many slots of the job are unfinished at once in the whole fleet:
	// claimed, and without an outcome. Overlap applies to further slots; with OverlapAllow they
	// wait in the order of their instants. Up to MaxConcurrency. Zero: one, or no limit with
	// OverlapAllow.
	Concurrency int
}

// OnDemand is the Schedule of a job that runs only when it is triggered. It has no slots of
// its own, so these fields, which concern a schedule, do not apply: Timezone, Spread, From,
// Until, Exclude and CatchUp.
const OnDemand = "none"

// GapPolicy determines the slot of a wall-clock time that a clock change skips.
type GapPolicy string

const (
	GapAfter GapPolicy = "after" // the slot is the first instant after the gap
	GapSkip  GapPolicy = "skip"  // there is no slot
)

// RepeatPolicy determines the slots of a wall-clock time that occurs twice.
type RepeatPolicy string

const (
	RepeatFirst  RepeatPolicy = "first"  // the slot is at the first occurrence
	RepeatSecond RepeatPolicy = "second" // the slot is at the second occurrence
	RepeatBoth   RepeatPolicy = "both"   // there is a slot at each
)

// Retry limits how often, and how soon, a slot is attempted again.
type Retry struct {
	// Attempts is the number of attempts, the first one and those of workers that died
	// included, up to MaxAttempts. With 1 a slot starts at most once. Zero: DefaultAttempts.
	Attempts int

	// Backoff is the delay after the first failed attempt. It doubles after each further one,
	// and is up to 20 % shorter or longer at random, but never more than MaxBackoff. If Backoff
	// is zero, it is DefaultBackoff. If MaxBackoff is zero, it is the larger one of
	// DefaultMaxBackoff and Backoff.
	Backoff, MaxBackoff time.Duration
}

// LeaseLost determines what happens to a handler whose node has lost contact with the broker
// for so long that another node may take over its slots.
type LeaseLost string

const (
	// LeaseLostCancel ends the handler's context before another node may start the slot.
	LeaseLostCancel LeaseLost = "cancel"

	// LeaseLostFinish lets the handler continue. Its result is recorded when the broker is
	// back, unless another node has taken over the slot. Then both have run.
	LeaseLostFinish LeaseLost = "finish"
)

// Overlap determines what happens to a slot that is due while an earlier one of the job has no
// outcome: the earlier one runs, waits for its next attempt, or was claimed by a worker that died.
//
// The policies apply to slots that were published on time. A slot that was caught up, backfilled
// or triggered, that a message of a stream started, or whose message was published again, is never
// skipped, and replaces no other slot: it waits for its turn. Otherwise a catch-up of ten slots
// would run one.
type Overlap string

const (
	OverlapSkip    Overlap = "skip"    // the new slot is skipped
	OverlapQueue   Overlap = "queue"   // the new slot waits; slots run in the order of their instants
	OverlapLatest  Overlap = "latest"  // the new slot waits, and replaces one that already waits
	OverlapReplace Overlap = "replace" // the earlier slot is cancelled if it was on time, then the new one runs
	OverlapAllow   Overlap = "allow"   // both run
)

// Overlaps returns all overlap policies.
func Overlaps() []Overlap {
	return []Overlap{OverlapSkip, OverlapQueue, OverlapLatest, OverlapReplace, OverlapAllow}
}

// CatchUpPolicy decides which late slots still run.
type CatchUpPolicy string

const (
	CatchUpLatest CatchUpPolicy = "latest" // only the newest one
	CatchUpAll    CatchUpPolicy = "all"    // the newest ones, up to CatchUp.Max
	CatchUpNone   CatchUpPolicy = "none"   // none
)

// CatchUp determines what happens to late slots: those that were not published in time, because
// no producer ran or the job was paused.
type CatchUp struct {
	// Policy decides which of them run. The others end as Missed. Empty: CatchUpLatest.
	Policy CatchUpPolicy

	// Within is how old a late slot may be and still run. Zero, or more than the namespace's
	// horizon: the horizon.
	Within time.Duration

	// Max limits CatchUpAll, up to MaxCatchUp. Zero: DefaultCatchUpMax.
	Max int
}

// WithDefaults returns a copy of the job with its empty fields filled, except Output and
// Concurrency, whose zero values stay. Shards is zero if the job does not split its slots.
func (j Job) WithDefaults() Job {
	j.Timezone = cmp.Or(j.Timezone, "UTC")
	j.DSTGap = cmp.Or(j.DSTGap, GapAfter)
	j.DSTOverlap = cmp.Or(j.DSTOverlap, RepeatFirst)
	j.Queue = cmp.Or(j.Queue, DefaultQueue)
	j.Retry.Attempts = cmp.Or(j.Retry.Attempts, DefaultAttempts)
	j.Retry.Backoff = cmp.Or(j.Retry.Backoff, DefaultBackoff)
	j.Retry.MaxBackoff = cmp.Or(j.Retry.MaxBackoff, max(DefaultMaxBackoff, j.Retry.Backoff))
	if !j.On.IsZero() {
		j.Overlap = cmp.Or(j.Overlap, OverlapAllow)
	}
	j.Overlap = cmp.Or(j.Overlap, OverlapSkip)
	j.OnLeaseLost = cmp.Or(j.OnLeaseLost, LeaseLostCancel)
	if j.Shards == 1 {
		j.Shards = 0
	}
	j.CatchUp.Policy = cmp.Or(j.CatchUp.Policy, CatchUpLatest)
	j.CatchUp.Max = cmp.Or(j.CatchUp.Max, DefaultCatchUpMax)
	return j
}

// Validate checks every field. Its error names each invalid one and what would be valid,
// and wraps ErrInvalid.
func (j Job) Validate() error { return j.ValidateWith(ParseSchedule) }

// Guarded reports whether the job limits how many of its slots run at once, so that each
// slot has to acquire the job's lock.
func (j Job) Guarded() bool { return j.WithDefaults().Overlap != OverlapAllow || j.Concurrency > 0 }

// Places returns how many slots of a guarded job may run at once: Concurrency, or 1.
func (j Job) Places() int { return max(1, j.Concurrency) }

// Hash returns a digest of the job. An empty field and its default give the same digest, except
// in Output and Concurrency, whose zero values stay (see WithDefaults): the registry keeps the hashes of
// superseded jobs, and those of jobs that write out these defaults must stay valid.
func (j Job) Hash() (string, error) {
	data, err := json.Marshal(j)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8]), nil
}

// ValidateWith does what Validate does, but calls parse in place of ParseSchedule. So a program
// with many jobs can compile equal plans only once.
func (j Job) ValidateWith(parse func(string, Plan) (*Schedule, error)) error {
	j = j.WithDefaults()
	_, planErr := parse(j.Name, j.Plan())
	f := faults{errs: []error{codec.ValidateName("job", j.Name), codec.ValidateName("queue", j.Queue), planErr}}
	bad := f.add
	bad(len(j.Payload) > MaxPayload, "payload: %d bytes, at most %d", len(j.Payload), MaxPayload)
	bad(len(j.Payload) > 0 && !json.Valid(j.Payload), "payload: it is not JSON")
	bad(j.Timeout < 0, "timeout %v: must not be negative", j.Timeout)
	bad(j.Output < 0 || j.Output > MaxOutput, "output: %d bytes, at most %d KiB", j.Output, MaxOutput>>10)
	bad(j.Deadline < 0, "deadline %v: must not be negative", j.Deadline)
	bad(j.Retry.Attempts < 1 || j.Retry.Attempts > MaxAttempts, "retry.attempts %d: 1 to %d", j.Retry.Attempts, MaxAttempts)
	bad(j.Retry.Backoff < 0, "retry.backoff %v: must not be negative", j.Retry.Backoff)
	bad(j.Retry.MaxBackoff < j.Retry.Backoff, "retry.max_backoff %v: must not be less than retry.backoff %v", j.Retry.MaxBackoff, j.Retry.Backoff)
	f.errs = append(f.errs, j.validateAlerts())
	bad(!slices.Contains(Overlaps(), j.Overlap), "overlap %q: want %s", codec.Clip(string(j.Overlap)), codec.Alternatives(Overlaps()...))
	bad(j.Shards < 0 || j.Shards > MaxShards, "shards %d: 1 to %d", j.Shards, MaxShards)
	bad(j.OnLeaseLost != LeaseLostCancel && j.OnLeaseLost != LeaseLostFinish, "on_lease_lost %q: want cancel or finish", codec.Clip(string(j.OnLeaseLost)))
	bad(j.Concurrency < 0 || j.Concurrency > MaxConcurrency, "concurrency %d: 1 to %d", j.Concurrency, MaxConcurrency)
	bad(!slices.Contains([]CatchUpPolicy{CatchUpLatest, CatchUpAll, CatchUpNone}, j.CatchUp.Policy), "catch_up.policy %q: want latest, all or none", codec.Clip(string(j.CatchUp.Policy)))
	bad(j.Plan().startedOtherwise() && j.CatchUp != CatchUp{CatchUpLatest, 0, DefaultCatchUpMax}, "catch_up: it applies to schedules only, and this job has none (%s)", j.Plan().Start())
	bad(j.CatchUp.Within < 0, "catch_up.within %v: must not be negative", j.CatchUp.Within)
	bad(j.CatchUp.Max < 1 || j.CatchUp.Max > MaxCatchUp, "catch_up.max %d: 1 to %d", j.CatchUp.Max, MaxCatchUp)
	if err := errors.Join(f.errs...); err != nil {
		return fmt.Errorf("job %q: %w", codec.Clip(j.Name), err)
	}
	return nil
}

// jobWire is the JSON of a Job in the registry. Durations are written as Go does ("1m30s"),
// instants as RFC 3339. Defaults are written too, so that a client in another language does not
// have to know them. Only members with omitempty are absent at their defaults.
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
	LeaseLost  LeaseLost       `json:"on_lease_lost,omitempty"` // empty: cancel
	CatchUp    CatchUpPolicy   `json:"catch_up"`
	Within     codec.Duration  `json:"catch_up_within,omitempty"`
	Max        int             `json:"catch_up_max"`
	Output     int             `json:"output,omitempty"`
	OnFailure  *Alert          `json:"on_failure,omitempty"`
	OnMissed   *Alert          `json:"on_missed,omitempty"`
	OnSuccess  *Alert          `json:"on_success,omitempty"`
	OnRecover  *Alert          `json:"on_recovered,omitempty"`
	OnLate     *Alert          `json:"on_late,omitempty"`
	LateAfter  codec.Duration  `json:"late_after,omitempty"`
	Heartbeat  *AlertHTTP      `json:"heartbeat,omitempty"`
	Plan       planWire        `json:"plan"`
}

// MarshalJSON writes the job as the registry holds it, with its empty fields filled.
func (j Job) MarshalJSON() ([]byte, error) {
	w, err := j.wire()
	if err != nil {
		return nil, err
	}
	return codec.Marshal(w)
}

// UnmarshalJSON reads what MarshalJSON writes. It does not validate the job.
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
	leaseLost := j.OnLeaseLost
	if leaseLost == LeaseLostCancel {
		leaseLost = "" // so that the JSON equals that of a program that does not know the field
	}
	payload, err := compact(j.Payload)
	return jobWire{
		j.Name, j.Queue, payload, codec.Duration(j.Timeout), codec.Duration(j.Deadline),
		j.Retry.Attempts, codec.Duration(j.Retry.Backoff), codec.Duration(j.Retry.MaxBackoff), j.Overlap, j.Concurrency, leaseLost,
		j.CatchUp.Policy, codec.Duration(j.CatchUp.Within), j.CatchUp.Max, j.Output,
		j.OnFailure, j.OnMissed, j.OnSuccess, j.OnRecovered, j.OnLate, codec.Duration(j.LateAfter), j.Heartbeat, j.Plan().wire(),
	}, err
}

func (w *jobWire) job() Job {
	p := w.Plan.plan()
	return Job{
		Name: w.Name, Queue: w.Queue, Payload: w.Payload,
		Timeout: time.Duration(w.Timeout), Deadline: time.Duration(w.Deadline),
		Retry:  Retry{w.Attempts, time.Duration(w.Backoff), time.Duration(w.MaxBackoff)},
		Output: w.Output, OnFailure: w.OnFailure, OnMissed: w.OnMissed, OnSuccess: w.OnSuccess, OnRecovered: w.OnRecover,
		OnLate: w.OnLate, LateAfter: time.Duration(w.LateAfter), Heartbeat: w.Heartbeat,
		Overlap: w.Overlap, Concurrency: w.Concurrent, OnLeaseLost: w.LeaseLost,
		CatchUp:  CatchUp{w.CatchUp, time.Duration(w.Within), w.Max},
		Schedule: p.Schedule, Timezone: p.Timezone, Spread: p.Spread, From: p.From, Until: p.Until,
		Exclude: p.Exclude, DSTGap: p.DSTGap, DSTOverlap: p.DSTOverlap, After: p.After, On: p.On, Shards: p.Shards,
	}
}

// compact removes insignificant space, so that a change of the payload's indentation does not
// count as an edit of the job.
func compact(payload json.RawMessage) (json.RawMessage, error) {
	if len(payload) == 0 {
		return nil, nil
	}
	var b bytes.Buffer
	err := json.Compact(&b, payload)
	return b.Bytes(), err
}

package job

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/schedule/cron"
)

// Plan is the part of a job that decides which slots exist. Its fields are those of Job. Two
// jobs with the same name and equal plans have the same slots.
type Plan struct {
	Schedule, Timezone string
	Spread             time.Duration
	From, Until        time.Time
	Exclude            []string
	DSTGap             GapPolicy
	DSTOverlap         RepeatPolicy

	After  []string
	On     On
	Shards int
}

// Plan returns the job's plan with its empty fields filled.
func (j Job) Plan() Plan {
	j = j.WithDefaults()
	return Plan{j.Schedule, j.Timezone, j.Spread, j.From, j.Until, j.Exclude, j.DSTGap, j.DSTOverlap, j.After, j.On, j.Shards}
}

// WithDefaults returns the plan with its empty fields filled.
func (p Plan) WithDefaults() Plan {
	p.Timezone = cmp.Or(p.Timezone, "UTC")
	p.DSTGap = cmp.Or(p.DSTGap, GapAfter)
	p.DSTOverlap = cmp.Or(p.DSTOverlap, RepeatFirst)
	return p
}

// parseSource compiles the plan's schedule.
func parseSource(name string, p Plan, zone *time.Location, exclude cron.Exclusions) (cron.Source, error) {
	e, err := cron.Parse(name, p.Schedule)
	if err == nil && e.Days > 0 && p.From.IsZero() {
		err = errors.New("it counts days from a date: want from, the first slot, like 2026-01-05T09:00:00+01:00")
	}
	if err != nil {
		return nil, fmt.Errorf("%w schedule %q: %w", ErrInvalid, codec.Clip(p.Schedule), err)
	}
	s := cron.Setting{Zone: cmp.Or(zone, time.UTC), Gap: cron.Gap(p.DSTGap), Repeat: cron.Repeat(p.DSTOverlap), Exclude: exclude}
	if !p.From.IsZero() {
		s.From = ceilUnix(p.From)
	}
	return e.Source(s), nil
}

func checkPolicies(p Plan) error {
	switch {
	case p.DSTGap != GapAfter && p.DSTGap != GapSkip:
		return fmt.Errorf("%w dst_gap %q: want after or skip", ErrInvalid, codec.Clip(string(p.DSTGap)))
	case p.DSTOverlap != RepeatFirst && p.DSTOverlap != RepeatSecond && p.DSTOverlap != RepeatBoth:
		return fmt.Errorf("%w dst_overlap %q: want first, second or both", ErrInvalid, codec.Clip(string(p.DSTOverlap)))
	}
	return nil
}

// parseBounds returns the first and the last instant that may be slots.
func parseBounds(from, until time.Time) (first, last int64, err error) {
	first, last = cron.FirstInstant, cron.LastInstant
	if !from.IsZero() {
		first = max(first, ceilUnix(from))
	}
	if !until.IsZero() {
		last = min(last, ceilUnix(until)-1)
	}
	if !from.IsZero() && !until.IsZero() && !until.After(from) {
		err = fmt.Errorf("%w until %s: want an instant after from %s", ErrInvalid, until.Format(time.RFC3339), from.Format(time.RFC3339))
	}
	return first, last, err
}

// ceilUnix returns the first whole second at or after t.
func ceilUnix(t time.Time) int64 {
	if t.Nanosecond() > 0 {
		return t.Unix() + 1
	}
	return t.Unix()
}

func parseSpread(name string, spread time.Duration) (time.Duration, error) {
	if spread < 0 || spread > MaxSpread || spread%time.Second != 0 {
		return 0, fmt.Errorf("%w spread %v: want whole seconds, from 0s to %v", ErrInvalid, spread, MaxSpread)
	}
	if spread == 0 {
		return 0, nil
	}
	return time.Duration(cron.StableHash(name, "spread", int(spread/time.Second))) * time.Second, nil
}

type planWire struct {
	Schedule   string         `json:"schedule"` // an expression, OnDemand, or empty if After or On starts the job
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

// UnmarshalJSON refuses a member that this program does not know, because a newer program may
// compute other slots from it.
func (w *planWire) UnmarshalJSON(data []byte) error {
	type known planWire
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	err := d.Decode((*known)(w))
	if err != nil && json.Unmarshal(data, new(known)) == nil {
		return fmt.Errorf("plan: %w: %s: upgrade this program", ErrVersion, codec.Clip(err.Error()))
	}
	return err
}

// MarshalJSON writes the plan as the registry holds it.
func (p Plan) MarshalJSON() ([]byte, error) { return codec.Marshal(p.wire()) }

// UnmarshalJSON reads what MarshalJSON writes. It does not compile the plan.
func (p *Plan) UnmarshalJSON(data []byte) error {
	var w planWire
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	err := w.bound()
	*p = w.plan()
	return err
}

// bound checks the members that ParseSchedule does not check.
func (w *planWire) bound() error {
	b := codec.Bounds{What: "plan"}
	b.Times("from", &w.From)
	b.Times("until", &w.Until)
	b.Number("shards", w.Shards, 0, MaxShards)
	return b.Err
}

// wire returns values with the same JSON for equal plans, so that two plans can be compared by it.
func (p Plan) wire() planWire {
	return planWire{p.Schedule, p.After, p.On, p.Timezone, codec.Duration(p.Spread), p.From.UTC(), p.Until.UTC(), p.Exclude, p.DSTGap, p.DSTOverlap, p.Shards}
}

func (w planWire) plan() Plan {
	if w.Shards == 1 {
		w.Shards = 0 // a single shard is the whole slot
	}
	return Plan{w.Schedule, w.Timezone, time.Duration(w.Spread), w.From, w.Until, w.Exclude, w.DSTGap, w.DSTOverlap, w.After, w.On, w.Shards}
}

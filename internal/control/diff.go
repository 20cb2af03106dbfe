package control

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/cronce-io/cronce/job"
)

// Field is one setting of a job that an edit changes. Name is as in the job file, like
// "retry.attempts". A setting that is added has no Old, one that is removed has no New.
type Field struct {
	Name string          `json:"field"`
	Old  json.RawMessage `json:"old,omitempty"`
	New  json.RawMessage `json:"new,omitempty"`
}

// fields compares all settings of two jobs and returns those that differ, ordered by name. It
// compares the stored JSON, so a new setting needs no change here.
func fields(before, after job.Job) ([]Field, error) {
	was, err := settings(before)
	if err != nil {
		return nil, err
	}
	is, err := settings(after)
	if err != nil {
		return nil, err
	}
	var changed []Field
	names := maps.Clone(was)
	maps.Copy(names, is)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if !bytes.Equal(was[name], is[name]) {
			changed = append(changed, Field{name, was[name], is[name]})
		}
	}
	return changed, nil
}

// Describe returns a job's settings as New, ordered by name.
func Describe(j job.Job) ([]Field, error) {
	is, err := settings(j)
	var all []Field
	for _, name := range slices.Sorted(maps.Keys(is)) {
		all = append(all, Field{Name: name, New: is[name]})
	}
	return all, err
}

// settings returns a job's settings by their names in the job file.
func settings(j job.Job) (map[string]json.RawMessage, error) {
	data, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	flat := map[string]json.RawMessage{}
	flatten(flat, "", data)
	return flat, nil
}

// flatten adds the members of an object, and their members as "outer.inner". It adds any
// other value under its own name.
func flatten(flat map[string]json.RawMessage, name string, value json.RawMessage) {
	var members map[string]json.RawMessage
	if json.Unmarshal(value, &members) != nil || len(members) == 0 {
		flat[name] = value
		return
	}
	for inner, v := range members {
		if name != "" {
			inner = name + "." + inner
		} else if spelled, ok := inFile[inner]; ok {
			inner = spelled
		}
		flatten(flat, inner, v)
	}
}

// inFile has the settings whose stored name differs from that in the job file.
var inFile = map[string]string{
	"attempts": "retry.attempts", "backoff": "retry.backoff", "max_backoff": "retry.max_backoff",
	"catch_up": "catch_up.policy", "catch_up_within": "catch_up.within", "catch_up_max": "catch_up.max",
	"plan": "",
}

const (
	// comingSlots is how many of the next slots of each plan are compared.
	comingSlots = 5

	// newSlots is how many slots of a new job are shown: enough to see its rhythm.
	newSlots = 3
)

// slots compares the next slots of two plans. appear are those of after that before does not
// have, and disappear those of before that after does not have. A nil plan has no slots.
func slots(name string, before, after *job.Plan, now time.Time) (appear, disappear []time.Time, err error) {
	var was, is *job.Schedule
	if before != nil {
		if was, err = job.ParseSchedule(name, *before); err != nil {
			return nil, nil, err
		}
	}
	if after != nil {
		if is, err = job.ParseSchedule(name, *after); err != nil {
			return nil, nil, err
		}
	}
	return without(is, was, now), without(was, is, now), nil
}

// without returns those of the next slots of s that other does not have.
func without(s, other *job.Schedule, now time.Time) []time.Time {
	if s == nil {
		return nil
	}
	most := comingSlots
	if other == nil {
		most = newSlots
	}
	var own []time.Time
	at := s.Next(now)
	for range most {
		if at.IsZero() {
			break
		}
		if other == nil || !other.Includes(at) {
			own = append(own, at)
		}
		at = s.Next(at)
	}
	return own
}

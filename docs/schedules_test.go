package docs_test

import (
	"encoding/json"
	"hash/fnv"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/lab/filetest"
	"github.com/cronce-io/cronce/job"
)

type scheduleCase struct {
	Name string `json:"name"`

	// Job holds the name and the plan, absent members being the defaults.
	Job   json.RawMessage `json:"job"`
	After time.Time       `json:"after"`
	Count int             `json:"count"`

	Slots   []time.Time `json:"slots,omitempty"`
	Delay   duration    `json:"delay,omitempty"`
	Refused string      `json:"refused,omitempty"`
}

func TestSchedules(t *testing.T) {
	t.Parallel()
	hold(t, "schedules.json", answerSchedule)
}

func answerSchedule(t *testing.T, c scheduleCase) scheduleCase {
	t.Helper()
	var j job.Job
	if err := json.Unmarshal(c.Job, &j); err != nil {
		t.Fatal(err)
	}
	s, err := job.ParseSchedule(j.Name, j.Plan())
	if c.Slots, c.Delay, c.Refused = nil, 0, refusal(t, err); err != nil {
		return c
	}
	c.Delay = duration(s.Delay())
	for at := s.Next(c.After); !at.IsZero() && len(c.Slots) < c.Count; at = s.Next(at) {
		c.Slots = append(c.Slots, at)
	}
	return c
}

// The vectors of the hash are in package job. Here they are held against the
// page's words, and against what H does with them.
func TestHashes(t *testing.T) {
	t.Parallel()
	data := filetest.Read(t, "../job/testdata/hash.json")
	var vectors []struct {
		Job, Field string
		Size, Hash int
	}
	if err := json.Unmarshal(data, &vectors); err != nil || len(vectors) == 0 {
		t.Fatal(len(vectors), err)
	}
	seen := map[string]bool{}
	for _, v := range vectors {
		seen[v.Field] = true
		h := fnv.New64a()
		_, _ = h.Write([]byte(v.Job + "\x00" + v.Field))
		if got := int(h.Sum64() % uint64(v.Size)); got != v.Hash {
			t.Errorf("%+v: FNV-1a says %d", v, got)
		}
		if got := hashOf(t, v.Job, v.Field); got != v.Hash {
			t.Errorf("%+v: the schedule says %d", v, got)
		}
	}
	if len(seen) != 7 {
		t.Errorf("vectors for %v, want all six fields and spread", seen)
	}
}

// hashOf is what H in a field, or a spread of 5 min, makes of the name.
func hashOf(t *testing.T, name, field string) int {
	t.Helper()
	h := map[string]struct {
		expression string
		of         func(time.Time) int
	}{
		"second": {"H * * * * *", time.Time.Second},
		"minute": {"0 H * * * *", time.Time.Minute},
		"hour":   {"0 0 H * * *", time.Time.Hour},
		"dom":    {"0 0 0 H * *", func(t time.Time) int { return t.Day() - 1 }},
		"month":  {"0 0 0 1 H *", func(t time.Time) int { return int(t.Month()) - 1 }},
		"dow":    {"0 0 0 * * H", func(t time.Time) int { return int(t.Weekday()) }},
		"spread": {"0 0 0 * * *", nil},
	}[field]
	s, err := job.ParseSchedule(name, job.Plan{Schedule: h.expression, Spread: 5 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if h.of == nil {
		return int(s.Delay() / time.Second)
	}
	return h.of(s.Next(time.Unix(0, 0)))
}

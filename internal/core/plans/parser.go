package plans

import (
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cronce-io/cronce/job"
)

// Parser compiles plans as job.ParseSchedule does. It remembers the schedules that do not
// depend on the job's name, so that a million jobs with a thousand different plans need a
// thousand compilations. The zero value is ready for use. It is safe for concurrent use.
type Parser struct {
	mu     sync.RWMutex
	parsed map[planKey]*job.Schedule
}

// maxParsed bounds the schedules that a Parser remembers. Each takes about 1 KB.
const maxParsed = 4096

// planKey holds every member of a plan that ParseSchedule reads if there is a schedule.
type planKey struct {
	schedule, timezone, exclude string
	from, until                 time.Time
	gap                         job.GapPolicy
	repeat                      job.RepeatPolicy
}

// Validate does what job.Job.Validate does.
func (c *Parser) Validate(j job.Job) error { return j.ValidateWith(c.Schedule) }

// Schedule does what job.ParseSchedule does.
func (c *Parser) Schedule(name string, p job.Plan) (*job.Schedule, error) {
	p = p.WithDefaults()
	if !p.Scheduled() || len(p.After) > 0 || !p.On.IsZero() || p.Spread != 0 || hashesName(p.Schedule) {
		return job.ParseSchedule(name, p)
	}
	var exclude []byte
	for _, text := range p.Exclude {
		exclude = strconv.AppendQuote(exclude, text)
	}
	key := planKey{p.Schedule, p.Timezone, string(exclude), p.From.UTC(), p.Until.UTC(), p.DSTGap, p.DSTOverlap}
	c.mu.RLock()
	s := c.parsed[key]
	c.mu.RUnlock()
	if s != nil {
		return s, nil
	}
	s, err := job.ParseSchedule(name, p)
	if err == nil {
		c.remember(key, s)
	}
	return s, err
}

// remember adds a schedule. If there are too many, it first forgets some.
func (c *Parser) remember(key planKey, s *job.Schedule) {
	// The texts may be slices of a large value, which they would keep in memory.
	key.schedule, key.timezone = strings.Clone(key.schedule), strings.Clone(key.timezone)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.parsed == nil {
		c.parsed = map[planKey]*job.Schedule{}
	}
	for other := range c.parsed {
		if len(c.parsed) < maxParsed {
			break
		}
		delete(c.parsed, other)
	}
	c.parsed[key] = s
}

// hashesName reports whether an item of a cron expression begins with H. An H after
// another letter is part of a name, as in THU.
func hashesName(text string) bool {
	for i := range len(text) {
		if text[i] == 'H' && (i == 0 || strings.IndexByte(" \t,", text[i-1]) >= 0) {
			return true
		}
	}
	return false
}

package job

import (
	"strconv"
	"strings"
	"sync"
	"time"
)

// Parser compiles plans as ParseSchedule does, and remembers those that do not
// depend on the job's name: a million jobs on a thousand plans are compiled a
// thousand times. The zero value is ready for use. It is safe for concurrent use.
type Parser struct {
	mu     sync.RWMutex
	parsed map[planKey]*Schedule
}

// maxParsed bounds what a Parser remembers, about 1 KB each.
const maxParsed = 4096

// planKey is all that ParseSchedule looks at in a plan with a schedule.
type planKey struct {
	schedule, timezone, exclude string
	from, until                 time.Time
	gap                         GapPolicy
	repeat                      RepeatPolicy
}

// Validate is Job.Validate.
func (c *Parser) Validate(j Job) error { return j.validate(c.Schedule) }

// Schedule is ParseSchedule.
func (c *Parser) Schedule(name string, p Plan) (*Schedule, error) {
	p = p.withDefaults()
	if p.started() || p.Spread != 0 || hashesName(p.Schedule) {
		return ParseSchedule(name, p)
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
	s, err := ParseSchedule(name, p)
	if err == nil {
		c.remember(key, s)
	}
	return s, err
}

// remember gives up any other when it is full.
func (c *Parser) remember(key planKey, s *Schedule) {
	// It may be a piece of something large.
	key.schedule, key.timezone = strings.Clone(key.schedule), strings.Clone(key.timezone)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.parsed == nil {
		c.parsed = map[planKey]*Schedule{}
	}
	for other := range c.parsed {
		if len(c.parsed) < maxParsed {
			break
		}
		delete(c.parsed, other)
	}
	c.parsed[key] = s
}

// hashesName reports whether an item of a cron expression is an H: one that follows
// another letter is of a name, as in THU.
func hashesName(text string) bool {
	for i := range len(text) {
		if text[i] == 'H' && (i == 0 || strings.IndexByte(" \t,", text[i-1]) >= 0) {
			return true
		}
	}
	return false
}

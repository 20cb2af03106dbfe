package verify

import (
	"fmt"
	"strings"
	"time"

	"github.com/cronce-io/cronce/job"
)

// chain is the slots of a job that comes after others. A slot should exist for each instant,
// and each token, at which all of these succeeded.
type chain struct {
	since time.Time // earlier successes do not count

	// succeeded has, for each job in Job.After, the instants of its successful slots. counted are
	// the instants at which one of these slots succeeded after since, and recent those at which
	// one succeeded less than Patience ago. tokens has the same for triggered runs.
	succeeded       []instants
	counted, recent instants
	tokens          map[string]*chained

	// recorded has the slots with a record, and judged the slots that are counted among those that
	// should exist.
	recorded, judged instants

	tooYoungCounted bool // the slots that are too young to judge were counted
}

// chained is a triggered run of the chain.
type chained struct {
	succeeded        uint32 // a bit for each job in Job.After
	counted, recent  bool
	recorded, judged bool
}

// followed is a job that comes after another one, with the index of that one in its Job.After.
type followed struct {
	by *timeline
	i  int
}

// chain sets up the timeline of a job that comes after others.
func (c *Check) chain(l *timeline) {
	after := l.entry.Job.After
	if len(after) == 0 {
		return
	}
	l.chain = &chain{
		since: l.entry.Since(), succeeded: make([]instants, len(after)), counted: instants{}, recent: instants{},
		tokens: map[string]*chained{}, recorded: instants{}, judged: instants{},
	}
	for i, name := range after {
		l.chain.succeeded[i] = instants{}
		c.before[name] = append(c.before[name], followed{l, i})
	}
}

// Alone reports whether the named job can be judged by its own records alone.
func (c *Check) Alone(name string) bool {
	return c.timelines[name] == nil || c.timelines[name].chain == nil
}

// judgeSuccessors uses a record to judge the jobs that come after its own.
func (c *Check) judgeSuccessors(r job.Record) {
	if r.State != job.Succeeded || r.Slot.Shards > 0 || r.Slot.Range || !c.inRange(r.Slot, r.Published) {
		return
	}
	for _, f := range c.before[r.Slot.Job] {
		ch := f.by.chain
		counted, fresh := r.Finished.After(ch.since), c.cfg.Now.Sub(r.Finished) <= Patience
		if r.Slot.Token != "" {
			t := ch.token(r.Slot.Token)
			t.succeeded |= 1 << f.i
			t.counted, t.recent = t.counted || counted, t.recent || fresh
			continue
		}
		unix := r.Slot.At.Unix()
		ch.succeeded[f.i].add(unix)
		if counted {
			ch.counted.add(unix)
		}
		if fresh {
			ch.recent.add(unix)
		}
	}
}

func (ch *chain) token(token string) *chained {
	if ch.tokens[token] == nil {
		ch.tokens[token] = &chained{}
	}
	return ch.tokens[token]
}

// seen records that a slot of the job has a record. It reports whether the slot was already
// counted among those that should exist.
func (ch *chain) seen(s job.Slot) (judged bool) {
	switch {
	case ch == nil || s.Range:
		return false
	case s.Token != "":
		t := ch.token(s.Token)
		t.recorded = true
		return t.judged
	}
	ch.recorded.add(s.At.Unix())
	return ch.judged.has(s.At.Unix())
}

// judgeChain finds the slots of the chain that should exist, and adds those without a record to
// unrecorded. beside is how many of them were counted as slots that no plan has, because their
// records came first. young is how many are too young to judge; only the first call returns it.
func (l *timeline) judgeChain() (beside, young int) {
	ch := l.chain
	if ch == nil {
		return 0, 0
	}
	for unix := range ch.succeeded[0].all() {
		switch {
		case !ch.counted.has(unix) || ch.judged.has(unix) || !ch.complete(unix):
			continue
		case ch.recent.has(unix) && !ch.recorded.has(unix):
			young += count(!l.waiting.has(unix))
			continue
		case ch.recorded.has(unix):
			beside++
		default:
			l.unrecorded.add(unix)
		}
		ch.judged.add(unix)
		l.slots++
	}
	for _, t := range ch.tokens {
		switch {
		case !t.counted || t.judged || t.succeeded != 1<<len(ch.succeeded)-1:
			continue
		case t.recent && !t.recorded:
			young++
			continue
		case t.recorded:
			beside++
		}
		t.judged = true
		l.slots++
	}
	if ch.tooYoungCounted {
		young = 0
	}
	ch.tooYoungCounted = true
	return beside, young
}

func (ch *chain) complete(unix int64) bool {
	for _, s := range ch.succeeded {
		if !s.has(unix) {
			return false
		}
	}
	return true
}

// lostRuns returns the triggered runs of the chain that should exist and do not.
func (c *Check) lostRuns(l *timeline) (lost []Problem) {
	if l.chain == nil {
		return nil
	}
	for token, t := range l.chain.tokens {
		if s := (job.Slot{Job: l.name, Token: token}); t.judged && !t.recorded && !l.waits(s) {
			lost = append(lost, c.unfollowed(l, s))
		}
	}
	return lost
}

// unfollowed describes a slot that should have followed from others.
func (c *Check) unfollowed(l *timeline, s job.Slot) Problem {
	p := Problem{
		Kind: Missing, Slot: s,
		Detail: fmt.Sprintf("neither a record nor a message, although %s succeeded more than %v ago", strings.Join(l.entry.Job.After, ", "), Patience),
	}
	if s.Token == "" && c.old(s.At) {
		p.Beyond = c.beyondHorizon()
	}
	return p
}

package verify

import (
	"fmt"
	"strings"
	"time"

	"github.com/cronce-io/cronce/job"
)

// chain is the slots of a job that comes after others: one should exist for each
// instant, and each token, of which all of these have succeeded.
type chain struct {
	since time.Time // what succeeded before counts for nothing

	// succeeded has the instants of each job that it comes after, tokens the bits of
	// those jobs. late are those of which one succeeded since, fresh a moment ago.
	succeeded   []instants
	late, fresh instants
	tokens      map[string]*chained

	// recorded have a record; judged are counted among those that should exist.
	recorded, judged instants

	told bool // how many are left out, since it is too early
}

// chained is a run of the chain that somebody triggered.
type chained struct {
	succeeded        uint32
	late, fresh      bool
	recorded, judged bool
}

// followed is a job that another one comes after, as the i-th.
type followed struct {
	by *line
	i  int
}

// chain makes the line one of a job that comes after others.
func (c *Check) chain(l *line) {
	after := l.entry.Job.After
	if len(after) == 0 {
		return
	}
	l.chain = &chain{
		since: l.entry.Since(), succeeded: make([]instants, len(after)), late: instants{}, fresh: instants{},
		tokens: map[string]*chained{}, recorded: instants{}, judged: instants{},
	}
	for i, name := range after {
		l.chain.succeeded[i] = instants{}
		c.before[name] = append(c.before[name], followed{l, i})
	}
}

// Alone reports whether it takes no other job's records to judge the named one.
func (c *Check) Alone(name string) bool { return c.lines[name] == nil || c.lines[name].chain == nil }

// follow takes in what a record says of the jobs that come after its own.
func (c *Check) follow(r job.Record) {
	if r.State != job.Succeeded || r.Slot.Shards > 0 || r.Slot.Range || !c.inRange(r.Slot, r.Published) {
		return
	}
	for _, f := range c.before[r.Slot.Job] {
		ch := f.by.chain
		late, fresh := r.Finished.After(ch.since), c.cfg.Now.Sub(r.Finished) <= Patience
		if r.Slot.Token != "" {
			t := ch.token(r.Slot.Token)
			t.succeeded |= 1 << f.i
			t.late, t.fresh = t.late || late, t.fresh || fresh
			continue
		}
		u := r.Slot.At.Unix()
		ch.succeeded[f.i].add(u)
		if late {
			ch.late.add(u)
		}
		if fresh {
			ch.fresh.add(u)
		}
	}
}

func (ch *chain) token(token string) *chained {
	if ch.tokens[token] == nil {
		ch.tokens[token] = &chained{}
	}
	return ch.tokens[token]
}

// seen takes in that a slot of the job has a record, and reports whether it is counted
// already among those that should exist.
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

// turns finds the slots of the chain that should exist: those without a record are
// open from then on. beside is how many have one that was counted as no plan's, young
// of how many it is too early to say anything, the first time.
func (l *line) turns() (beside, young int) {
	ch := l.chain
	if ch == nil {
		return 0, 0
	}
	for u := range ch.succeeded[0].all() {
		switch {
		case !ch.late.has(u) || ch.judged.has(u) || !ch.complete(u):
			continue
		case ch.fresh.has(u) && !ch.recorded.has(u):
			young += count(!l.waiting.has(u))
			continue
		case ch.recorded.has(u):
			beside++
		default:
			l.open.add(u)
		}
		ch.judged.add(u)
		l.slots++
	}
	for _, t := range ch.tokens {
		switch {
		case !t.late || t.judged || t.succeeded != 1<<len(ch.succeeded)-1:
			continue
		case t.fresh && !t.recorded:
			young++
			continue
		case t.recorded:
			beside++
		}
		t.judged = true
		l.slots++
	}
	if ch.told {
		young = 0
	}
	ch.told = true
	return beside, young
}

func (ch *chain) complete(u int64) bool {
	for _, s := range ch.succeeded {
		if !s.has(u) {
			return false
		}
	}
	return true
}

// lostRuns are the triggered runs of the chain that should exist, and do not.
func (c *Check) lostRuns(l *line) (lost []Problem) {
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
func (c *Check) unfollowed(l *line, s job.Slot) Problem {
	p := Problem{
		Kind: Missing, Slot: s,
		Detail: fmt.Sprintf("neither a record nor a message, though %s had succeeded more than %v ago", strings.Join(l.entry.Job.After, ", "), Patience),
	}
	if s.Token == "" && c.old(s.At) {
		p.Beyond = c.beyondHorizon()
	}
	return p
}

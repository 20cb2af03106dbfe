package doctor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

const (
	// sweepLate is how long after the last one a sweep should have come to its end: any
	// producer makes one when there was none for a minute and a half.
	sweepLate = 4 * time.Minute

	// maxUnread bounds how many messages are named that no program can read.
	maxUnread = 5
)

// Unread are the messages for workers that this program cannot read: Count, and why of
// the first.
type Unread struct {
	Count int
	Why   []string
}

// sweepEnd reads when a sweep for lost slots last came to its end.
func (g gatherer) sweepEnd(ctx context.Context) (err error) {
	g.f.Sweep, err = g.SweepEnds().Read(ctx)
	if err == nil || errors.Is(err, job.ErrNotFound) || unreadable(err) {
		g.f.SweepErr, err = err, nil
	}
	return err
}

// unread looks for messages that are no slots.
func (g gatherer) unread(ctx context.Context) error {
	for _, err := range g.Waiting(ctx, kv.WaitingFilter{}) {
		g.from.Alive()
		switch {
		case err != nil && !unreadable(err):
			return err
		case err != nil:
			if g.f.Unread.Count++; len(g.f.Unread.Why) < maxUnread {
				g.f.Unread.Why = append(g.f.Unread.Why, err.Error())
			}
		}
	}
	return nil
}

// sweep is about the sweep for lost slots: whether it is made, what it passes over, and
// whether it found that the ledger went back.
func (c *check) sweep() {
	const why = "a slot whose message was lost is offered again by no node"
	mend := "look at the producers' logs; their logins need what " + c.cronce("auth producer") + " prints"
	var since time.Time // that a producer has been alive
	for _, n := range c.live() {
		if n.Producer && (since.IsZero() || n.Began().Before(since)) {
			since = n.Began()
		}
	}
	if since.Before(c.Sweep.Time) {
		since = c.Sweep.Time
	}
	late := c.Now.Sub(since) > sweepLate
	switch e := c.SweepErr; {
	case !c.produces():
	case late && errors.Is(e, job.ErrNotFound):
		c.add(Warning, "sweep", "sweep", "no sweep for lost slots has come to its end", why, mend)
	case late:
		c.add(Warning, "sweep", "sweep", fmt.Sprintf("the last sweep for lost slots came to its end at %s, %v ago", stamp(since), c.Now.Sub(since).Round(time.Second)), why, mend)
	}
	if n := len(c.Sweep.Skipped) + c.Sweep.More; n > 0 {
		first := c.Sweep.Skipped
		what := fmt.Sprintf("it passed over %d things that it could not read:", n)
		for i, s := range first[:min(len(first), maxUnread)] {
			if i > 0 {
				what += ";"
			}
			what += fmt.Sprintf(" %s: %s", s.What, s.Why)
		}
		c.add(Warning, "sweep", "sweep", what, "if one of these is lost, no node offers it again", "a newer version of cronce may read them; else remove what no program wrote")
	}
	if r := c.Sweep.Rewound; !r.IsZero() && c.Now.Sub(r.Time) < recently {
		c.add(Warning, "rewound", "bucket "+c.Namespace+"_ledger", fmt.Sprintf("it went back: at %s the record of %s, written at %s at revision %d, stood at revision %d (0: not at all)",
			stamp(r.Time), r.Lost.Slot, stamp(r.Lost.Time), r.Lost.Revision, r.Found),
			"it was purged, or restored from an older copy: attempts and fences since that copy went back, and slots that had run may have run again",
			"compare what the slots since then did with what "+c.cronce("slot ls --since "+stamp(r.Lost.Time))+" says; the warning ends after a day")
	}
}

// produces reports whether a live node is a producer.
func (c *check) produces() bool {
	for _, n := range c.live() {
		if n.Producer {
			return true
		}
	}
	return false
}

// unread is about messages in the stream of slots that are no slots.
func (c *check) unread() {
	for _, why := range c.Unread.Why {
		c.add(Warning, "unread", "stream "+c.Namespace+"_slots", why, "workers leave it to a newer version for as long as a slot may be old, and log it twice",
			"run one version of cronce everywhere; if none wrote it, nats stream rmm")
	}
	if more := c.Unread.Count - len(c.Unread.Why); more > 0 {
		c.add(Warning, "unread", "stream "+c.Namespace+"_slots", fmt.Sprintf("%d more messages cannot be read", more), "", "")
	}
}

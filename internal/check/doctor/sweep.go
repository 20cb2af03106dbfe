package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/broker/layout"
	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

const (
	// sweepLate is how old the last sweep may be: the second oldest producer makes one if there was
	// none for a minute and a half, and the third oldest a minute and a half later.
	sweepLate = 4 * time.Minute

	// maxUnread bounds how many unreadable messages are named.
	maxUnread = 5
)

// Unread describes the messages that this program cannot read: Count is how many, Why is the
// reason for each of the first.
type Unread struct {
	Count int
	Why   []string
}

// sweepEnd reads when the last sweep for lost slots ended.
func (g gatherer) sweepEnd(ctx context.Context) (err error) {
	g.f.Sweep, err = g.SweepEnds().Read(ctx)
	if err == nil || errors.Is(err, job.ErrNotFound) || exchange.IsUnreadable(err) {
		g.f.SweepErr, err = err, nil
	}
	return err
}

// unread looks for messages that cannot be read.
func (g gatherer) unread(ctx context.Context) error {
	for _, err := range g.Waiting(ctx, stream.WaitingFilter{}) {
		g.from.Alive()
		switch {
		case err != nil && !exchange.IsUnreadable(err):
			return err
		case err != nil:
			if g.f.Unread.Count++; len(g.f.Unread.Why) < maxUnread {
				g.f.Unread.Why = append(g.f.Unread.Why, err.Error())
			}
		}
	}
	return nil
}

// sweep checks the sweep for lost slots: that there is one, what it skipped, and whether it
// found that the ledger was rewound.
func (c *check) sweep() {
	const why = "if the message of a slot is lost, no node offers the slot again"
	mend := "look at the producers' logs; their logins need what " + c.cronce("auth producer") + " prints"
	late := c.Now.Sub(plans.Later(c.producingSince(), c.Sweep.Time)) > sweepLate
	switch e := c.SweepErr; {
	case !c.produces():
	case late && errors.Is(e, job.ErrNotFound):
		c.add(Warning, "sweep", "sweep", "no sweep for lost slots has ended", why, mend)
	case late:
		c.add(Warning, "sweep", "sweep", fmt.Sprintf("the last sweep for lost slots ended at %s, %v ago", stamp(c.Sweep.Time), c.Now.Sub(c.Sweep.Time).Round(time.Second)), why, mend)
	}
	if n := len(c.Sweep.Skipped) + c.Sweep.More; n > 0 {
		first := codec.Map(c.Sweep.Skipped[:min(len(c.Sweep.Skipped), maxUnread)], func(s exchange.SkippedValue) string { return s.What + ": " + s.Why })
		c.add(Warning, "sweep", "sweep", fmt.Sprintf("it skipped %d values that it could not read: %s", n, strings.Join(first, "; ")), "if one of these slots is lost, no node offers it again", "a newer version of cronce may read them; otherwise remove what no program wrote")
	}
	if r := c.Sweep.Rewound; !r.IsZero() && c.Now.Sub(r.Time) < recently {
		c.add(Warning, "rewound", "bucket "+layout.Bucket(c.Namespace, "ledger"), fmt.Sprintf("it was rewound: at %s the record of %s, written at %s at revision %d, was at revision %d (0: it did not exist)",
			stamp(r.Time), r.Lost.Slot, stamp(r.Lost.Time), r.Lost.Revision, r.Found),
			"it was purged, or restored from an older copy: attempts and fences since that copy went back, and slots that had run may have run again",
			"compare the effects of the slots since then with "+c.cronce("slot ls --since "+stamp(r.Lost.Time))+"; the warning ends after a day")
	}
}

// unread reports messages in the stream of slots that cannot be read.
func (c *check) unread() {
	for _, why := range c.Unread.Why {
		c.add(Warning, "unread", layout.Title(layout.SlotStream(c.Namespace)), why, "workers leave it to a newer version until it is older than the horizon, and log it twice",
			"run one version of cronce everywhere; if no version wrote it: nats stream rmm")
	}
	if more := c.Unread.Count - len(c.Unread.Why); more > 0 {
		c.add(Warning, "unread", layout.Title(layout.SlotStream(c.Namespace)), fmt.Sprintf("%d more messages cannot be read", more), "", "")
	}
}

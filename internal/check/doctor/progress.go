package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cronce-io/cronce/internal/check/verify"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

const (
	// maxAhead is how far the watermark may be ahead of the broker's clock, and maxBehind how far
	// it may be behind. It moves every second. A producer that starts needs some seconds.
	maxAhead  = 5 * time.Second
	maxBehind = time.Minute
)

// wrongWatermark says what is wrong with a watermark that ResetWatermark mends. Empty: the watermark
// needs no reset.
func (f Facts) wrongWatermark() (what, why string) {
	switch by := f.Watermark.Time.Sub(f.Now); {
	case errors.Is(f.WatermarkErr, job.ErrInvalid):
		return "it cannot be read: " + f.WatermarkErr.Error(), "a running producer writes it again within seconds; a producer that starts offers the slots since the horizon again"
	case f.WatermarkErr != nil:
		return "", ""
	case by > maxAhead:
		return fmt.Sprintf("it is at %s, %v ahead of the broker's clock", stamp(f.Watermark.Time), by.Round(time.Second)),
			"slots up to it count as published: none is published until then"
	case f.Watermark.Revision > f.RegistryRevision:
		return fmt.Sprintf("it names revision %d of the registry, whose last revision is %d: the registry was created again, or restored", f.Watermark.Revision, f.RegistryRevision),
			"it cannot move: a producer that starts offers all slots since then again"
	}
	return "", ""
}

func (c *check) watermark() {
	if what, why := c.wrongWatermark(); what != "" {
		c.add(Error, "watermark", "watermark", what, why, "when the clocks are right: "+c.cronce("doctor --reset-watermark"))
		return
	}
	if errors.Is(c.WatermarkErr, job.ErrVersion) {
		c.add(Error, "watermark", "watermark", c.WatermarkErr.Error(), "producers of this version do not move it, and offer the slots since the horizon again each time that one starts",
			"run one version of cronce everywhere; if no newer one runs: "+c.cronce("doctor --reset-watermark --force"))
		return
	}
	oldest := c.producingSince()
	if oldest.IsZero() || !slices.ContainsFunc(c.Jobs, c.active) || c.Now.Sub(oldest) < maxBehind {
		return // no producer has to move it, or the oldest one has just started
	}
	why := "slots that are due are not published, or no producer can confirm that they are"
	mend := "look at the producers' logs: the cause may be a definition that only a newer version can read, a full stream, or a wrong clock"
	if c.WatermarkErr != nil {
		c.add(Error, "watermark", "watermark", "there is none, although producers have run since "+stamp(oldest), why, mend)
	} else if by := c.Now.Sub(c.Watermark.Time); by > maxBehind {
		c.add(Error, "watermark", "watermark", fmt.Sprintf("it is at %s, %v behind", stamp(c.Watermark.Time), by.Round(time.Second)), why, mend)
	}
}

// slots checks for records that should have an outcome, or another attempt, by now.
func (c *check) slots() {
	nodes := map[string]exchange.NodeEvent{}
	for _, e := range c.Nodes {
		nodes[e.Name] = e
	}
	timeouts := map[string]time.Duration{}
	for _, e := range c.Jobs {
		timeouts[e.Job.Name] = e.Job.Timeout
	}
	shards := map[job.Slot]bool{} // split slots of which a shard has no outcome
	for _, o := range c.Open {
		if o.Slot.Shards > 0 {
			shards[o.Slot.Whole()] = true
		}
	}
	stuck := map[string][]string{}
	for _, o := range c.Open {
		if what := c.stuck(o, nodes, timeouts[o.Slot.Job]); what != "" && !shards[o.Slot] {
			stuck[what] = append(stuck[what], o.Slot.ID())
		}
	}
	for _, what := range slices.Sorted(maps.Keys(stuck)) {
		c.add(Warning, "stuck", "slot "+few(stuck[what]), what, "they have no outcome, and may keep other slots of their jobs waiting",
			c.cronce("slot explain '"+stuck[what][0]+"'")+"; "+c.cronce("verify --repair"))
	}
}

// stuck says why a slot is stuck. Empty: it is not.
func (c *check) stuck(o kv.LedgerEntry, nodes map[string]exchange.NodeEvent, timeout time.Duration) string {
	switch o.State {
	case job.Retrying:
		if c.Now.Sub(o.RetryAt) > verify.Patience && c.Now.Sub(o.Time) > verify.Patience {
			return fmt.Sprintf("retrying, and the next attempt has been due for more than %v", verify.Patience)
		}
	case job.Running:
		n, lease := nodes[o.Node], c.Survey.Settings.Lease
		dead := n.Dead(c.Now, lease)
		switch ran := c.Now.Sub(o.Time); {
		case dead && c.Now.Sub(plans.Later(n.Time, o.Time)) > 2*max(n.Node.Lease, lease)+verify.Patience:
			return "running on a dead node, and no worker has taken it over"
		case !dead && timeout > 0 && ran > timeout+verify.Patience:
			return "running for longer than its job's timeout: its handler does not return"
		}
	}
	return ""
}

// locks checks for locks that are held by slots which have ended or were lost before they
// started, and for locks whose newest slot is in the future.
func (c *check) locks() {
	for _, l := range c.Locks {
		if by := l.Newest.Sub(c.Now); by > time.Minute {
			c.add(Error, "lock", "job "+l.Job, fmt.Sprintf("its lock names a slot of %s, %v ahead of the broker's clock", stamp(l.Newest), by.Round(time.Second)),
				"its overlap policy lets only newer slots run: all until then are skipped",
				c.cronce("job pause "+l.Job)+", wait until no slot of it runs, nats kv del "+c.Namespace+"_state lock."+l.Job+", "+c.cronce("job resume "+l.Job))
		}
		var finished, unstarted []string
		for _, h := range l.Holders {
			switch at, ended := c.Ended[h.Slot]; {
			case !ended || c.Now.Sub(plans.Later(at, h.Since)) <= verify.Patience:
			case at.IsZero() && l.Waiting:
				unstarted = append(unstarted, h.Slot.ID())
			default:
				finished = append(finished, h.Slot.ID())
			}
		}
		if len(unstarted) > 0 {
			c.add(Warning, "lock", "job "+l.Job, "slots wait for others which no worker has started: "+few(unstarted),
				"no worker takes them, or their messages were lost: then a producer offers them again within two minutes", c.cronce("slot explain '"+unstarted[0]+"'")+"; "+c.cronce("verify --repair"))
		}
		if len(finished) > 0 && l.Waiting {
			c.add(Warning, "lock", "job "+l.Job, "slots wait for others which have ended: "+few(finished),
				"their workers did not take them out of the job's lock; a producer has a worker do that within two minutes", c.cronce("slot explain '"+finished[0]+"'"))
		}
	}
}

// Reset is the watermark before and after a reset.
type Reset struct{ From, To exchange.Watermark }

// ErrRight says that the watermark needs no reset.
var ErrRight = errors.New("the watermark is neither ahead of the broker's clock nor of the registry: it is not reset")

// ErrNewer says that the watermark is of a newer format.
var ErrNewer = errors.New("the watermark was written by a newer version of cronce: it is not reset")

// ResetWatermark resets a watermark that Check finds wrong. The package comment says what it
// writes, and why. The error is ErrRight if the watermark is right, and ErrNewer if it is
// of a newer format. With force, ResetWatermark resets these too, to the broker's time less the
// horizon, but never forward. The error is job.ErrConflict if the watermark was moved since the
// facts were gathered, and job.ErrUnknown if the broker did not answer.
func ResetWatermark(ctx context.Context, store *kv.Store, f Facts, by, nonce string, force bool) (Reset, error) {
	what, _ := f.wrongWatermark()
	switch {
	case what != "" || force:
	case errors.Is(f.WatermarkErr, job.ErrVersion):
		return Reset{}, fmt.Errorf("%w: %w", ErrNewer, f.WatermarkErr)
	default:
		return Reset{}, ErrRight
	}
	to, back := f.Watermark.Time, f.Now.Add(-f.Survey.Settings.Horizon)
	switch {
	case f.WatermarkErr != nil:
		to = back
	case what == "" || to.Sub(f.Now) > maxAhead:
		to = plans.Earlier(to, back)
	}
	next := exchange.Watermark{Time: to.UTC(), RegistryTime: to.UTC(), Node: by, Nonce: nonce, Extra: f.Watermark.Extra}
	if _, err := store.Watermark().Write(ctx, next, f.WatermarkRevision); err != nil {
		return Reset{}, fmt.Errorf("reset the watermark: %w", err)
	}
	return Reset{f.Watermark, next}, nil
}

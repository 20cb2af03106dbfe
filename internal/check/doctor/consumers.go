package doctor

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cronce-io/cronce/internal/broker/space"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// isUnasked reports whether the consumer has messages, none of them in flight, and no request for
// them. A node's request lasts half a minute. While a node handles messages, it has no request.
func isUnasked(t space.NodeConsumer) bool { return unattended(t.Info) && t.Info.NumAckPending == 0 }

// nodeConsumers checks the consumer of alerts, and those of messages that start jobs.
func (c *check) nodeConsumers() {
	for i, t := range c.NodeConsumers {
		if t.Job == "" {
			c.alerts(t, slices.Contains(c.UnaskedConsumers, i))
			c.paused("alerts", t.Info)
		} else {
			c.intake(t, slices.Contains(c.UnaskedConsumers, i))
			c.paused("job "+t.Job, t.Info)
		}
	}
}

// alerts checks that the alerts of jobs are delivered.
func (c *check) alerts(t space.NodeConsumer, unasked bool) {
	wanted := slices.ContainsFunc(c.Jobs, func(e plans.Entry) bool { return exchange.WantsAlerts(e.Job) })
	const why = "no alert is sent for slots that fail or are missed"
	switch {
	case !wanted:
	case t.Err != nil:
		c.add(Note, "alerts", "alerts", "this login may not look at them: "+t.Err.Error(), "", "")
	case t.Info == nil && slices.ContainsFunc(c.live(), func(n exchange.Node) bool { return n.Worker }):
		c.add(Warning, "alerts", "alerts", "there is no consumer for them, although there are workers", why, "look at the workers' logs; "+c.cronce("setup")+" creates it")
	case unasked:
		c.add(Warning, "alerts", "alerts", fmt.Sprintf("%d wait, and no worker asks for them", t.Info.NumPending), why, "start a worker whose login may deliver alerts: see cronce auth --help")
	case t.Info != nil && t.Info.NumRedelivered > 0:
		c.add(Warning, "alerts", "alerts", fmt.Sprintf("%d could not be delivered, and are retried", t.Info.NumRedelivered), why, "look at the workers' logs: alert not delivered")
	}
}

// intake checks the messages that start one job.
func (c *check) intake(t space.NodeConsumer, unasked bool) {
	i := slices.IndexFunc(c.Jobs, func(e plans.Entry) bool { return e.Job.Name == t.Job })
	about, why := "job "+t.Job, "they do not start it"
	switch {
	case i < 0 || c.Jobs[i].Paused:
	case errors.Is(t.Err, job.ErrNotFound):
		c.add(Error, "intake", about, "stream "+t.Stream+", whose messages should start it, does not exist", why, "create the stream, or correct on.stream of the job")
	case t.Err != nil:
		c.add(Note, "intake", about, "this login may not look at the messages that start it: "+t.Err.Error(), "", "")
	case t.Info == nil && c.produces():
		c.add(Warning, "intake", about, fmt.Sprintf("no producer takes the messages of stream %s that should start it", t.Stream), why, "look at the producers' logs; what their logins need: cronce auth --help (--on)")
	case unasked:
		c.add(Warning, "intake", about, fmt.Sprintf("%d messages of stream %s wait, and no producer asks for them", t.Info.NumPending, t.Stream), why, "start a producer, or look at the logs of the running ones: "+c.cronce("run"))
	case t.Info != nil && t.Info.NumRedelivered > 0:
		c.add(Warning, "intake", about, fmt.Sprintf("%d messages of stream %s are redelivered again and again", t.Info.NumRedelivered, t.Stream), why, "look at the producers' logs: the stream of slots may be full")
	}
}

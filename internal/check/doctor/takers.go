package doctor

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// still reports whether the consumer has messages to give, of which nobody has one in
// hand, and nobody asks for them. The clients of those ask for half a minute at a time,
// and for nothing while they see to what they got.
func still(t kv.Taker) bool {
	return t.Info != nil && t.Info.NumPending > 0 && t.Info.NumWaiting == 0 && t.Info.NumAckPending == 0
}

// takers is about what is taken beside the queues: alerts, and messages that start
// jobs.
func (c *check) takers() {
	for i, t := range c.Takers {
		if t.Job == "" {
			c.alerts(t, slices.Contains(c.Still, i))
		} else {
			c.intake(t, slices.Contains(c.Still, i))
		}
	}
}

// alerts is about those that jobs want.
func (c *check) alerts(t kv.Taker, still bool) {
	wanted := slices.ContainsFunc(c.Jobs, func(e core.Entry) bool { return e.Job.OnFailure != nil || e.Job.OnMissed != nil })
	const why = "nobody is told of what fails or is missed"
	switch {
	case !wanted:
	case t.Err != nil:
		c.add(Note, "alerts", "alerts", "nothing can be said of them with this login: "+t.Err.Error(), "", "")
	case t.Info == nil && slices.ContainsFunc(c.live(), func(n core.Node) bool { return n.Worker }):
		c.add(Warning, "alerts", "alerts", "there is no consumer for them, though there are workers", why, "look at the workers' logs; "+c.cronce("setup")+" creates it")
	case still:
		c.add(Warning, "alerts", "alerts", fmt.Sprintf("%d wait, and no worker asks for them", t.Info.NumPending), why, "start a worker, whose login may deliver alerts: see cronce auth --help")
	case t.Info != nil && t.Info.NumRedelivered > 0:
		c.add(Warning, "alerts", "alerts", fmt.Sprintf("%d could not be delivered, and are tried again", t.Info.NumRedelivered), why, "look at the workers' logs: alert not delivered")
	}
}

// intake is about the messages that start one job.
func (c *check) intake(t kv.Taker, still bool) {
	i := slices.IndexFunc(c.Jobs, func(e core.Entry) bool { return e.Job.Name == t.Job })
	about, why := "job "+t.Job, "it is not started for them"
	producers := slices.ContainsFunc(c.live(), func(n core.Node) bool { return n.Producer })
	switch {
	case i < 0 || c.Jobs[i].Paused:
	case errors.Is(t.Err, job.ErrNotFound):
		c.add(Error, "intake", about, "there is no stream "+t.Stream+", whose messages are to start it", why, "create the stream, or mend the job's on.stream")
	case t.Err != nil:
		c.add(Note, "intake", about, "nothing can be said with this login of the messages that start it: "+t.Err.Error(), "", "")
	case t.Info == nil && producers:
		c.add(Warning, "intake", about, fmt.Sprintf("no producer has begun to take the messages of stream %s that start it", t.Stream), why, "look at the producers' logs; what their logins need: cronce auth --help (--on)")
	case still:
		c.add(Warning, "intake", about, fmt.Sprintf("%d messages of stream %s wait, and no producer asks for them", t.Info.NumPending, t.Stream), why, "start a producer, or look at the logs of those there are: "+c.cronce("run"))
	case t.Info != nil && t.Info.NumRedelivered > 0:
		c.add(Warning, "intake", about, fmt.Sprintf("%d messages of stream %s come again and again", t.Info.NumRedelivered, t.Stream), why, "look at the producers' logs: the stream of slots may be full")
	}
}

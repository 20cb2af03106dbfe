package doctor

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/broker/layout"
	"github.com/cronce-io/cronce/internal/broker/space"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

const (
	// leastLease outlasts a failover of the broker: three quarters of it are enough for 2 s
	// between heartbeats, 9 s of election and 1 s for the answer.
	leastLease = 16 * time.Second

	// copyWithin is how long after a slot's due time a producer may publish a copy of it although
	// the watermark says that the slot was published.
	copyWithin = time.Minute

	// settling is how long a node that starts may take to create the consumers of its queues, and to add
	// its jobs to the registry.
	settling = 15 * time.Second
)

func (c *check) settings() {
	set := c.Survey.Settings
	if set.Retention < set.Horizon+time.Hour {
		c.add(Error, "retention", "", fmt.Sprintf("outcomes are kept for %v, and slots run until they are %v old", set.Retention, set.Horizon),
			"a slot whose record is gone runs again", c.cronce("setup --retention "+(set.Horizon+24*time.Hour).String()))
	}
	replicated := slices.ContainsFunc(slices.Collect(maps.Values(c.Survey.Streams)), func(i *jetstream.StreamInfo) bool { return i.Config.Replicas > 1 })
	if replicated && set.Lease < leastLease {
		c.add(Warning, "lease", "", fmt.Sprintf("the lease of %v is shorter than a failover of the cluster: an election takes up to 9s", set.Lease),
			"every server that dies costs each running slot an attempt", c.cronce("setup --lease 20s"))
	}
	if c.Refused > 0 {
		c.add(Warning, "lease", "", fmt.Sprintf("%d completions were refused in the last 24h, the last one of %s on node %s: its worker was stopped, or cut off, for longer than the lease of %v",
			c.Refused, c.Latest.ID, c.Latest.Node, set.Lease),
			"each of these slots ran twice", "find out what stops the worker (swapping, throttling, a suspended machine), or "+c.cronce("setup --lease "+(2*set.Lease).String()))
	}
	var worst time.Duration
	for _, n := range c.live() {
		worst = max(worst, n.ClockError)
	}
	if need := copyWithin + 2*worst; set.Duplicates < need {
		c.add(Warning, "duplicates", "", fmt.Sprintf("the duplicate window of %v is shorter than %v, within which copies of a slot come: nodes know the broker's time to within %v",
			set.Duplicates, need.Round(time.Second), worst),
			"copies are stored and delivered, and the ledger refuses them", c.cronce("setup --duplicates "+(2*need).Round(time.Minute).String()))
	}
}

// nodes checks the processes of the fleet.
func (c *check) nodes() {
	zones := map[string][]string{}
	c.clocks()
	for _, n := range c.live() {
		if n.Tzdata != "" {
			zones[n.Tzdata] = append(zones[n.Tzdata], n.Name)
		}
	}
	if len(zones) > 1 {
		what := ""
		for _, release := range slices.Sorted(maps.Keys(zones)) {
			what += fmt.Sprintf("; %s on %s", release, few(zones[release]))
		}
		c.add(Warning, "tzdata", "", "nodes have different time zone data: "+what[2:],
			"they may compute different slots", "run the same version of cronce everywhere")
	}
	for _, e := range c.Nodes {
		if e.Err != nil {
			c.add(Warning, "node", "node "+e.Name, "its record cannot be read: "+e.Err.Error(), "its claims cannot be taken over", c.nodeRemoval(e))
		}
	}
	if len(c.Strangers) > 0 {
		c.add(Error, "domains", "node "+few(c.Strangers), "they answer for this namespace, and their records are not in its bucket: another fleet of the same name is in a connected JetStream domain",
			"what one fleet publishes is stored in both: triggered runs run twice", "give one of the fleets a name of its own: cronce run --namespace NAME, with an application of its jobs there")
	}
	if !c.produces() && c.Full == "" && slices.ContainsFunc(c.Jobs, c.active) {
		c.add(Error, "producer", "", "no live node produces", "no slot is published", "start a producer: "+c.cronce("run"))
	}
}

// queues checks that the slots of each queue are taken.
func (c *check) queues() {
	wanted := map[string][]string{} // the jobs that may get more slots
	used := map[string]bool{}
	for _, e := range c.Jobs {
		queue := e.Job.WithDefaults().Queue
		used[queue] = true
		if c.active(e) {
			wanted[queue] = append(wanted[queue], e.Job.Name)
		}
	}
	known := map[string]bool{}
	for _, q := range c.Survey.Queues {
		known[q.Name] = true
		c.queue(q, wanted[q.Name], used[q.Name])
		c.paused("queue "+q.Name, q.Slots)
		c.paused("queue "+q.Name, q.Bulk)
		c.paused("queue "+q.Name, q.Timers)
		c.pressure(q)
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if !known[name] {
			c.queue(space.Queue{Name: name}, wanted[name], true)
		}
	}
}

// queue checks one queue. jobs are its jobs that may get more slots, and used reports whether it has any job.
func (c *check) queue(q space.Queue, jobs []string, used bool) {
	about, workers := "queue "+q.Name, c.workers(q.Name)
	run := "start a worker that has handlers for them: " + c.cronce("run --queue "+q.Name+" -f jobs.yaml")
	switch {
	case c.Full != "": // heartbeats are not stored either, so the workers may live
	case len(workers) > 0 && q.Slots == nil && (len(jobs) > 0 || q.Waiting > 0) && c.settled(workers):
		c.add(Error, "consumer", about, "it has no consumer, so its workers get no slots, and they may not create it or the server refuses to", "its slots wait, and expire",
			c.cronce("setup --queue "+q.Name)+" with a login that may create it; if the server refuses that (10104), the consumer's file is damaged: stop the server, remove streams/"+layout.SlotStream(c.Namespace)+"/obs/"+q.Name+" from its store, start it, and do this again")
	case len(workers) > 0:
		if slices.Contains(c.Unasked, q.Name) {
			c.add(Warning, "unasked", about, fmt.Sprintf("%d slots wait, and its workers are idle and do not ask for them: %s", q.Waiting+q.Fired, few(codec.Map(workers, func(n exchange.Node) string { return n.Name }))),
				"the slots wait, and expire", "look at the workers' logs: the service that they run the slots on may not be ready (ready: in jobs.yaml)")
		}
	case q.Waiting > 0 && !used: // its jobs were moved to other queues, or removed
		c.add(Warning, "worker", about, fmt.Sprintf("%d slots wait, no live node works on it, and no job uses it any more", q.Waiting),
			"slots that have not run in another queue expire, and the messages of those that have stay until a worker of this queue removes them", "start a worker until nothing waits: "+c.cronce("run --queue "+q.Name+" -f jobs.yaml"))
	case q.Waiting > 0:
		c.add(Warning, "worker", about, fmt.Sprintf("%d slots wait, and no live node works on it", q.Waiting), "they wait, and expire", run)
	case len(jobs) > 0:
		c.add(Warning, "worker", about, "no live node works on it; its jobs: "+few(jobs), "their slots will wait, and expire", run)
	case q.Fired == 0 && q.Slots != nil && !used:
		c.add(Note, "unused", about, "no node works on it, nothing waits in it, and no job uses it", "",
			fmt.Sprintf("if you do not need it any more: nats consumer rm %s_slots %s", c.Namespace, q.Name))
	}
	if len(workers) > 0 && q.Fired > 0 && q.Timers == nil {
		c.add(Warning, "fired", about, fmt.Sprintf("%d triggered runs are due and wait, and no worker of the queue takes them", q.Fired),
			"they wait, and expire", "restart its workers, and check that their logins have what cronce auth worker prints; or "+c.cronce("setup --queue "+q.Name))
	}
	if len(workers) == 0 && q.Fired > 0 {
		c.add(Warning, "fired", about, fmt.Sprintf("%d triggered runs are due and wait, and no live node works on it", q.Fired),
			"they wait, and expire", run+"; or trigger them again with the same key, which moves them to the current queues of their jobs")
	}
}

// settled reports whether one of the nodes has run for long enough to have created and registered what it
// needs.
func (c *check) settled(nodes []exchange.Node) bool {
	return slices.ContainsFunc(nodes, func(n exchange.Node) bool { return c.Now.Sub(n.Began()) > settling })
}

// paused reports a consumer that is paused on the server, as by "nats consumer pause". Its messages
// wait, although it has requests for them.
func (c *check) paused(about string, info *jetstream.ConsumerInfo) {
	if info == nil || !info.Paused {
		return
	}
	c.add(Warning, "paused", about, fmt.Sprintf("its consumer %s of stream %s is paused on the server for %v more", info.Name, info.Stream, info.PauseRemaining.Round(time.Second)),
		"its messages wait until then, and slots expire", fmt.Sprintf("nats consumer resume %s %s; to pause a job: %s", info.Stream, info.Name, c.cronce("job pause NAME")))
}

// pressure checks how many messages are unsettled.
func (c *check) pressure(q space.Queue) {
	for _, info := range q.Consumers() {
		if info.Config.MaxAckPending > 0 && info.NumAckPending*10 >= info.Config.MaxAckPending*8 {
			c.add(Warning, "ack_pending", "queue "+q.Name, fmt.Sprintf("%d of at most %d messages are unsettled: in flight, or released with a delay", info.NumAckPending, info.Config.MaxAckPending),
				"beyond that limit nothing is delivered", "look at what is retried, or has no handler: "+c.cronce("slot ls --state retrying"))
		}
	}
}

// jobs checks the definitions, and that workers have handlers for them.
func (c *check) jobs() {
	for _, b := range c.Broken {
		c.add(Error, "broken", "job "+b.Name, "its stored definition cannot be used: "+b.Err.Error(), "none of its slots is published",
			c.cronce("job apply -f jobs.yaml")+", or "+c.cronce("job rm "+b.Name))
	}
	var unhandled []string
	handles := map[string]exchange.HandlerSet{}
	for node, list := range c.Handlers {
		handles[node] = list.Set()
	}
	for _, e := range c.Jobs {
		name := e.Job.Name
		if _, err := job.ParseSchedule(name, e.Job.Plan()); err != nil {
			c.add(Error, "broken", "job "+name, "its plan cannot be computed: "+err.Error(), "none of its slots is published",
				c.cronce("job apply -f jobs.yaml")+", or "+c.cronce("job rm "+name))
			continue
		}
		if ahead := e.Since().Sub(c.Now); ahead > time.Minute {
			c.add(Warning, "future", "job "+name, fmt.Sprintf("its plan comes into force at %s, ahead of the broker's clock: it was stored while that clock was wrong", stamp(e.Since())),
				"none of its slots is published until then", c.cronce("job rm "+name)+", and apply it again")
		}
		workers := c.workers(e.Job.WithDefaults().Queue)
		handled := slices.ContainsFunc(workers, func(n exchange.Node) bool { return handles[n.Name].MayHandle(name) })
		if len(workers) > 0 && !handled && c.active(e) {
			unhandled = append(unhandled, name)
		}
	}
	c.unregistered()
	if len(unhandled) > 0 {
		c.add(Warning, "handler", "job "+few(unhandled), "workers serve its queue, but none has a handler for it",
			"its slots are released again and again until they expire",
			"start a worker that has a handler for it, or "+c.cronce("job pause "+unhandled[0])+", or "+c.cronce("job rm "+unhandled[0]))
	}
}

// unregistered reports handlers of live nodes for jobs that are not in the registry. A node whose login may
// not write the registry does not add its jobs.
func (c *check) unregistered() {
	known := map[string]bool{}
	for _, e := range c.Jobs {
		known[e.Job.Name] = true
	}
	for _, b := range c.Broken {
		known[b.Name] = true
	}
	var missing []string
	for _, n := range c.live() {
		if !n.Worker || !c.settled([]exchange.Node{n}) {
			continue
		}
		for _, name := range c.Handlers[n.Name].Jobs {
			if !known[name] && !slices.Contains(missing, name) {
				missing = append(missing, name)
			}
		}
	}
	if slices.Sort(missing); len(missing) > 0 {
		c.add(Warning, "unregistered", "job "+few(missing), "live workers have a handler for it, and it is not in the registry", "none of its slots is published",
			c.cronce("job apply -f FILE")+" with the workers' job file and the login of an operator; or take the job out of that file")
	}
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// leases checks that nodes use the stored settings, by the lease in their records.
func (c *check) leases() {
	var other []string
	for _, n := range c.live() {
		if n.Lease != c.Survey.Settings.Lease {
			other = append(other, fmt.Sprintf("%s (lease %v)", n.Name, n.Lease))
		}
	}
	if len(other) > 0 {
		c.add(Warning, "settings", "node "+few(other), fmt.Sprintf("the stored lease is %v: they started with other settings, and keep them until they are restarted", c.Survey.Settings.Lease),
			"parts of the fleet wait for different times before they take a silent node's slots", "restart them; if the settings were lost: "+c.cronce("setup --lease D")+", with what was stored before")
	}
}

const (
	// odd is an offset that a synchronized clock does not have.
	odd = time.Second

	// wrong is the offset beyond which a node does not trust the broker's clock, unless
	// --max-clock-offset allows more.
	wrong = time.Hour
)

// clocks checks the broker's clock and those of the nodes.
func (c *check) clocks() {
	nodes := c.live()
	var apart []string
	for _, n := range nodes {
		if n.ClockOffset.Abs() > wrong {
			apart = append(apart, n.Name)
		}
	}
	if len(apart) > 1 && 2*len(apart) > len(nodes) {
		c.add(Error, "clock", "broker", fmt.Sprintf("its clock is at %s, and more than an hour from those of %d of %d nodes: %s", stamp(c.Now), len(apart), len(nodes), few(apart)),
			"these nodes publish nothing, and slots that are too old wait there, without an outcome", "correct the broker's clock, or those of the nodes")
	} else if by := c.Now.Sub(c.Local); !c.Local.IsZero() && by.Abs() > wrong {
		c.add(Warning, "clock", "broker", fmt.Sprintf("its clock is at %s, this machine's at %s", stamp(c.Now), stamp(c.Local)),
			"slots start by the broker's clock; if it is wrong, slots that started by it cannot be undone", "correct the wrong clock before a producer starts")
	}
	for _, n := range nodes {
		c.clock(n)
	}
}

func (c *check) clock(n exchange.Node) {
	offset, about := n.ClockOffset.Abs().Round(time.Millisecond), "node "+n.Name
	what := fmt.Sprintf("its clock and the broker's are %v apart", offset)
	mend := "correct the wrong clock: check the node's and the broker's"
	switch {
	case offset > wrong && n.Producer:
		c.add(Error, "clock", about, what,
			"beyond an hour (or --max-clock-offset) it does not produce, and slots that are too old wait there, without an outcome", mend)
	case offset > wrong:
		c.add(Warning, "clock", about, what,
			"beyond an hour (or --max-clock-offset) slots that are too old wait there, without an outcome", mend)
	case offset > odd:
		c.add(Warning, "clock", about, what,
			"the node follows the broker's clock, but its logs and its handlers do not", "synchronize the clocks: chronyd, systemd-timesyncd")
	}
}

// isUnasked reports whether the consumer has messages, none of them in flight, and no request for
// them. A node's request lasts half a minute. While a node handles messages, it has no request.
func isUnasked(t space.NodeConsumer) bool { return unattended(t.Info) && t.Info.NumAckPending == 0 }

// nodeConsumers checks the consumer of alerts, and those of messages that start jobs.
func (c *check) nodeConsumers() {
	for i, t := range c.NodeConsumers {
		if t.Job == "" {
			c.hopeless()
			c.alerts(t, slices.Contains(c.UnaskedConsumers, i))
			c.paused("alerts", t.Info)
		} else {
			c.intake(t, slices.Contains(c.UnaskedConsumers, i))
			c.paused("job "+t.Job, t.Info)
		}
	}
}

// hopeless names the jobs whose alerts or heartbeats a service will not take, unless they were edited since.
func (c *check) hopeless() {
	for _, e := range c.Jobs {
		event, ok := c.Undeliverable[e.Job.Name]
		if !ok || e.Time.After(event.Time) || !exchange.WantsAlerts(e.Job) {
			continue
		}
		why, _ := exchange.Undeliverable(event)
		c.add(Warning, "alerts", "job "+e.Job.Name, "its service does not take its alerts: "+why, "no alert reports its failures, or its watchdog reports it as dead",
			"correct the URL in the job, or at the service; "+c.cronce("job show "+e.Job.Name))
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

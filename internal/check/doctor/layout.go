package doctor

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/broker/layout"
	"github.com/cronce-io/cronce/job"
)

// layout checks that everything exists and is configured as it must be.
func (c *check) layout() {
	v := c.Survey
	for _, title := range v.Missing {
		c.add(Error, "missing", title, "it does not exist",
			"a namespace needs it: nodes do not start", c.cronce("setup"))
	}
	switch err := v.SettingsErr; {
	case errors.Is(err, job.ErrNotFound):
		c.add(Error, "settings", "", "no settings are stored", "nodes cannot agree on lease, horizon and retention", c.cronce("setup"))
	case errors.Is(err, job.ErrVersion):
		c.add(Error, "settings", "", err.Error(), "this program cannot read them, and nodes of this version do not start", "install a newer version of cronce")
	case err != nil:
		c.add(Error, "settings", "", err.Error(), "nodes refuse to start", "nats kv del "+layout.Bucket(c.Namespace, "state")+" settings, then "+c.cronce("setup"))
	}
	if v.NoTimers {
		if v.Schedules {
			c.add(Warning, "timers", layout.Title(layout.TimerStream(c.Namespace)), "it is missing, although this server supports it",
				"jobs cannot be triggered for a later time", c.cronce("setup"))
		} else {
			c.add(Note, "timers", "", "nats-server "+v.Version+" has no message schedules: jobs cannot be triggered for a later time", "",
				"upgrade to nats-server 2.12 or newer, then "+c.cronce("setup"))
		}
	}
	for _, d := range v.Differences {
		if d.Field == layout.FieldMessageSize {
			c.add(Error, "layout", d.Where, fmt.Sprintf("it has a %s of %s, not %s", d.Field, d.Found, d.Want),
				"slots whose messages or records are larger do not run, or get no outcome", c.cronce("setup"))
			continue
		}
		if d.Tolerated {
			continue // see outdated
		}
		mend := c.cronce("setup")
		switch {
		case d.Field == layout.FieldReplicas && v.Cluster == "": // a copy of a cluster's streams was restored here
			mend = "this server is in no cluster: " + c.cronce("setup --replicas 1")
		case d.Remove != "":
			mend = "it cannot be changed in place: save its contents, and remove it: " + d.Remove + "; then " + c.cronce("setup")
		}
		name, why := "layout", "nodes refuse to start on it"
		if d.Field == "storage" || d.Field == "persist mode" {
			name, why = "storage", "what the broker acknowledged is lost when it restarts: slots are lost, or run again"
		}
		c.add(Error, name, d.Where, fmt.Sprintf("it has %s %s, not %s", d.Field, d.Found, d.Want), why, mend)
	}
}

// foreign names consumers and streams that no program of the namespace has made.
func (c *check) foreign() {
	for _, f := range c.Survey.Foreign {
		if f.Consumer != "" {
			c.add(Warning, "foreign", "consumer "+f.Consumer+" of "+layout.Title(f.Stream), "no program of this namespace has made it: it "+f.What,
				"a login that should not may read or withhold what is stored", fmt.Sprintf("find out who made it, or remove it: nats consumer rm %s %s", f.Stream, f.Consumer))
		} else {
			c.add(Warning, "foreign", layout.Title(f.Stream), "it is none of this namespace's streams, and it "+f.What,
				"slots may be kept, copied or forged", "find out who made it, or change it: nats stream edit "+f.Stream)
		}
	}
}

// storage checks the replicas.
func (c *check) storage() {
	single, fewer, behind := []string{}, []string{}, map[string][]string{}
	even := 0
	for _, name := range slices.Sorted(maps.Keys(c.Survey.Streams)) {
		info := c.Survey.Streams[name]
		if n := info.Config.Replicas; n <= 1 {
			single = append(single, name)
		} else if n%2 == 0 {
			even = n
		}
		if info.Cluster == nil {
			continue
		}
		if copies := len(info.Cluster.Replicas) + 1; copies < info.Config.Replicas {
			fewer = append(fewer, fmt.Sprintf("%s (%d of %d)", name, copies, info.Config.Replicas))
		}
		for _, peer := range info.Cluster.Replicas {
			if peer.Offline || !peer.Current {
				behind[peer.Name] = append(behind[peer.Name], name)
			}
		}
	}
	for _, server := range slices.Sorted(maps.Keys(behind)) {
		c.add(Warning, "replica", "server "+server, "its copy is not up to date: "+few(behind[server]),
			"one more server that fails may stop all writes", "bring it back, or wait until it has caught up: nats server report jetstream")
	}
	if len(fewer) > 0 { // their server was removed from the cluster for good
		c.add(Warning, "replica", "", "fewer copies than configured exist of "+few(fewer),
			"one more server that fails may stop all writes", "add a server to the cluster: it gets the missing copies by itself")
	}
	if even > 0 {
		c.add(Warning, "replicas", "", fmt.Sprintf("what is stored has %d replicas", even),
			"an even number survives no more failures than one replica less", c.cronce("setup --replicas 3"))
	}
	switch {
	case len(single) == 0:
	case c.Survey.Cluster == "":
		c.add(Note, "replicas", "", "everything is stored once, on a single server",
			"while it is down nothing runs, and what its disk loses is lost", "a cluster of three servers, then "+c.cronce("setup --replicas 3"))
	default:
		c.add(Warning, "replicas", "", "stored once, although the server is part of a cluster: "+few(single),
			"while that server is down nothing runs, and what its disk loses is lost", c.cronce("setup --replicas 3"))
	}
}

// limits checks how much room is left.
func (c *check) limits() {
	const consumers = "consumers"
	const stops = "when it is full no slot is published, claimed or completed"
	full := func(about string, used, most int64, unit, why string) {
		if most <= 0 || used*10 < most*8 {
			return
		}
		level := Warning
		if used*20 >= most*19 && unit != consumers { // all that are needed may exist
			level = Error
		}
		c.add(level, "limit", about, fmt.Sprintf("it has %d of at most %d %s", used, most, unit),
			why, "raise the limit: nats stream edit, or the account's")
	}
	for _, name := range slices.Sorted(maps.Keys(c.Survey.Streams)) {
		info := c.Survey.Streams[name]
		full("stream "+name, int64(info.State.Bytes), info.Config.MaxBytes, "bytes", stops)
		full("stream "+name, int64(info.State.Msgs), info.Config.MaxMsgs, "messages", stops)
		most := int64(info.Config.MaxConsumers)
		if c.Survey.Account != nil { // its limit holds for each stream
			if limit := int64(c.Survey.Account.Limits.MaxConsumers); limit > 0 && (most <= 0 || limit < most) {
				most = limit
			}
		}
		full("stream "+name, int64(info.State.Consumers), most, consumers, "a node that gets no consumer learns of changes seconds later, and a new queue cannot be created")
	}
	if a := c.Survey.Account; a != nil {
		full("the account", int64(a.Store), a.Limits.MaxStore, "bytes", stops)
		for _, name := range slices.Sorted(maps.Keys(a.Tiers)) {
			full("the account, tier "+name, int64(a.Tiers[name].Store), a.Tiers[name].Limits.MaxStore, "bytes", stops)
		}
	}
}

// streamServers returns the servers that are known to store the streams. If none is known, it is the
// connected server.
func (c *check) streamServers() []string {
	names := map[string]bool{}
	for _, info := range c.Survey.Streams {
		for _, server := range serversOf(info) {
			names[server] = true
		}
	}
	if len(names) == 0 && c.Survey.Server != "" {
		names[c.Survey.Server] = true
	}
	return slices.Sorted(maps.Keys(names))
}

func serversOf(info *jetstream.StreamInfo) (names []string) {
	if info.Cluster == nil {
		return nil
	}
	if info.Cluster.Leader != "" {
		names = append(names, info.Cluster.Leader)
	}
	for _, peer := range info.Cluster.Replicas {
		names = append(names, peer.Name)
	}
	return slices.DeleteFunc(names, func(n string) bool { return strings.TrimSpace(n) == "" })
}

// full reports a server that can store nothing. Heartbeats are not stored either, so live
// nodes look dead.
func (c *check) full() {
	if c.Full == "" {
		return
	}
	c.add(Error, "full", "server "+c.Survey.Server, "its storage is full: "+c.Full,
		"no slot is published, started or recorded, and every node looks dead", "free space on that disk: then the server goes on by itself, and producers publish what was refused")
}

// outdated reports streams and buckets of an older version that nodes work with, although a field
// differs from what Setup makes.
func (c *check) outdated() {
	for _, kind := range []struct {
		field             string
		level             Level
		check, found, why string
	}{
		{layout.FieldRollup, Warning, "rollup", "roll-up and purge are allowed in",
			"any login that may write one key there can remove all other keys by a message with the header Nats-Rollup"},
		{layout.FieldBatches, Note, "batches", "atomic batches are denied in",
			"on a server that syncs each write, publications, claims, outcomes and new jobs wait for one sync each"},
		{layout.FieldOrders, Note, "orders", "orders are not kept in",
			"which operator paused, changed or triggered a job cannot be looked up later"},
	} {
		var where []string
		for _, d := range c.Survey.Differences {
			if d.Tolerated && d.Field == kind.field {
				where = append(where, d.Where)
			}
		}
		if len(where) > 0 {
			c.add(kind.level, kind.check, "", kind.found+" "+few(where)+", which an older version made", kind.why, c.cronce("setup"))
		}
	}
}

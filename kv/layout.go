package kv

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// nodesTTL is the age at which the broker removes node records. It only cleans up and
// does not decide which nodes are alive, so it must be longer than any lease.
func nodesTTL(lease time.Duration) time.Duration { return max(time.Hour, 4*lease) }

// layout returns all streams of a namespace. The state bucket comes first, because it
// holds the settings that determine the others. A server before 2.12 (recent is false)
// supports neither message schedules nor atomic batches: layout then leaves out the timer
// stream, and no stream allows batches.
func layout(namespace string, set job.Settings, recent bool) []jetstream.StreamConfig {
	bucket := func(what string, ttl time.Duration) jetstream.StreamConfig {
		name := namespace + "_" + what
		return jetstream.StreamConfig{
			Name: "KV_" + name, Subjects: []string{"$KV." + name + ".>"},
			MaxMsgsPerSubject: 1, // with more, an older value would reappear when the newest expires
			MaxAge:            ttl,
			Discard:           jetstream.DiscardNew,
			// Like the buckets of nats.go, except that no message can remove other messages.
			// Otherwise a login that may write one key could empty the bucket with a
			// Nats-Rollup header.
			AllowRollup: false, DenyPurge: true, DenyDelete: true, AllowDirect: true,
			Duplicates: job.DefaultDuplicates,
			Replicas:   set.Replicas,
		}
	}
	var events []string
	for _, kind := range core.Exceptional() {
		events = append(events, namespace+".event."+string(kind)+".*")
	}
	jobs := bucket("jobs", 0)
	jobs.AllowAtomicPublish = recent // a node writes thousands of definitions at its start
	all := []jetstream.StreamConfig{
		bucket("state", 0),
		jobs,
		bucket("nodes", nodesTTL(set.Lease)),
		bucket("ledger", set.Retention),
	}
	if recent {
		// The timer stream comes before the required ones. If the creator dies half-way,
		// the namespace is then not left without timers.
		all = append(all, jetstream.StreamConfig{
			Name: timerStream(namespace), Subjects: []string{namespace + ".timer.>"},
			Description: "triggered runs whose time has not come, or that wait for a worker since it has",
			Retention:   jetstream.WorkQueuePolicy,
			Discard:     jetstream.DiscardOld, // message schedules require it, so the stream must have no limit that discards
			// The server requires roll-up on a stream with schedules: when a timer fires,
			// the server replaces the schedule by the fired message with a roll-up.
			Duplicates:  job.DefaultDuplicates,
			AllowDirect: true, AllowRollup: true, AllowMsgSchedules: true,
			Replicas: set.Replicas,
		})
	}
	return append(all, []jetstream.StreamConfig{
		{
			Name: namespace + "_slots", Subjects: []string{namespace + ".slot.>"},
			Description: "slots to run, until they have an outcome",
			Retention:   jetstream.WorkQueuePolicy,
			Discard:     jetstream.DiscardNew, // a full stream refuses new slots; it never drops one
			Duplicates:  set.Duplicates,
			AllowDirect: true,
			Replicas:    set.Replicas,
		},
		{
			Name: namespace + "_events", Subjects: events,
			Description: "what went another way than planned",
			MaxAge:      set.Retention,
			Duplicates:  job.DefaultDuplicates,
			AllowDirect: true,
			Replicas:    set.Replicas,
		},
	}...)
}

// Streams returns the names of all streams that a namespace may have, including those of
// its buckets.
func Streams(namespace string) []string {
	var names []string
	for _, cfg := range layout(namespace, job.Settings{}, true) {
		names = append(names, cfg.Name)
	}
	return names
}

func timerStream(namespace string) string { return namespace + "_timers" }

// difference is a setting on the broker that differs from the wanted one.
type difference struct {
	where, field, found, want string

	// fixed is true if the server cannot change the setting.
	fixed bool
	// tolerated is true if nodes can work with the found value. A namespace that an older
	// version created has it until Setup runs.
	tolerated bool
	// mend sets the wanted value in a configuration.
	mend func(*jetstream.StreamConfig)
}

func (d difference) String() string {
	return fmt.Sprintf("%s has %s %s, not %s", d.where, d.field, d.found, d.want)
}

// Differences that nodes tolerate.
const (
	FieldRollup  = "roll-up and purge"
	FieldBatches = "atomic batches"
)

// differences compares only the settings that Cronce depends on. Size limits, placement
// and descriptions are the operator's choice. The exception is a size limit on the timer
// stream, because it would drop timers.
func differences(found, want jetstream.StreamConfig) []difference {
	var all []difference
	check := func(field string, found, wanted any, mend func(*jetstream.StreamConfig)) {
		if f, w := fmt.Sprint(found), fmt.Sprint(wanted); f != w {
			all = append(all, difference{where: title(want.Name), field: field, found: f, want: w, fixed: mend == nil, mend: mend})
		}
	}
	// With DiscardOld, a size limit drops stored messages to make room.
	drops := (found.MaxBytes > 0 || found.MaxMsgs > 0) && found.Discard == jetstream.DiscardOld
	check("storage", found.Storage, want.Storage, nil)
	check("retention", found.Retention, want.Retention, nil)
	check("mirror", found.Mirror != nil, false, nil)
	check("sealed", found.Sealed, false, nil)
	check("persist mode", found.PersistMode, jetstream.DefaultPersistMode, nil)
	check("sources", len(found.Sources), 0, func(c *jetstream.StreamConfig) { c.Sources = nil })
	check("a subject transform", found.SubjectTransform != nil, false, func(c *jetstream.StreamConfig) { c.SubjectTransform = nil })
	check("subjects", sorted(found.Subjects), sorted(want.Subjects), func(c *jetstream.StreamConfig) { c.Subjects = want.Subjects })
	check("max age", found.MaxAge, want.MaxAge, func(c *jetstream.StreamConfig) { c.MaxAge = want.MaxAge })
	check("messages per subject (history)", max(found.MaxMsgsPerSubject, 0), want.MaxMsgsPerSubject,
		func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = want.MaxMsgsPerSubject })
	check("direct get", found.AllowDirect, true, func(c *jetstream.StreamConfig) { c.AllowDirect = true })
	check("no ack", found.NoAck, false, func(c *jetstream.StreamConfig) { c.NoAck = false })
	if drops && want.Discard == jetstream.DiscardNew {
		check("a size limit with discard", found.Discard, want.Discard, func(c *jetstream.StreamConfig) { c.Discard = want.Discard })
	}
	if want.AllowMsgSchedules {
		check("message schedules", found.AllowMsgSchedules, true, func(c *jetstream.StreamConfig) { c.AllowMsgSchedules, c.Discard = true, jetstream.DiscardOld })
		check("a size limit", found.MaxBytes > 0 || found.MaxMsgs > 0, false, func(c *jetstream.StreamConfig) { c.MaxBytes, c.MaxMsgs = -1, -1 })
	}
	tolerate := func() { all[len(all)-1].tolerated = true }
	if want.DenyPurge && (found.AllowRollup || !found.DenyPurge) {
		check(FieldRollup, "allowed", "denied", func(c *jetstream.StreamConfig) { c.AllowRollup, c.DenyPurge = false, true })
		tolerate()
	}
	if want.AllowAtomicPublish && !found.AllowAtomicPublish {
		check(FieldBatches, "denied", "allowed", func(c *jetstream.StreamConfig) { c.AllowAtomicPublish = true })
		tolerate()
	}
	if want.Retention == jetstream.WorkQueuePolicy {
		check("duplicate window", found.Duplicates, want.Duplicates, func(c *jetstream.StreamConfig) { c.Duplicates = want.Duplicates })
	}
	if want.Replicas != 0 {
		check("replicas", found.Replicas, want.Replicas, func(c *jetstream.StreamConfig) { c.Replicas = want.Replicas })
	}
	return all
}

func sorted(subjects []string) string {
	subjects = slices.Clone(subjects)
	slices.Sort(subjects)
	return strings.Join(subjects, ",")
}

// title returns the name of a stream or bucket for messages to users.
func title(stream string) string {
	if bucket, ok := strings.CutPrefix(stream, "KV_"); ok {
		return "bucket " + bucket
	}
	return "stream " + stream
}

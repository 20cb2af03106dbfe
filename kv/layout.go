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

// nodesTTL collects the records of nodes long dead; it never decides who lives,
// so it has to be longer than any lease.
func nodesTTL(lease time.Duration) time.Duration { return max(time.Hour, 4*lease) }

// layout is everything that a namespace has on the broker, the state bucket
// first: it holds the settings that the rest is made by. A server from before 2.12 (recent
// is false) knows no message schedules and no atomic batches: for it the stream of timers
// is left out, and no stream allows batches.
func layout(namespace string, set job.Settings, recent bool) []jetstream.StreamConfig {
	bucket := func(what string, ttl time.Duration) jetstream.StreamConfig {
		name := namespace + "_" + what
		return jetstream.StreamConfig{
			Name: "KV_" + name, Subjects: []string{"$KV." + name + ".>"},
			MaxMsgsPerSubject: 1, // an older value would come back when the newest expires
			MaxAge:            ttl,
			Discard:           jetstream.DiscardNew,
			// As nats.go makes its buckets, but that no message can remove others: one
			// with Nats-Rollup, from a login that may write one key, would empty the bucket.
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
		// Before what a namespace cannot do without: a creator that dies half-way
		// does not leave it without timers.
		all = append(all, jetstream.StreamConfig{
			Name: timerStream(namespace), Subjects: []string{namespace + ".timer.>"},
			Description: "triggered runs whose time has not come, or that wait for a worker since it has",
			Retention:   jetstream.WorkQueuePolicy,
			Discard:     jetstream.DiscardOld, // message schedules want it; so there must be no limit to discard by
			// The server forces roll-up on a stream with schedules: it replaces a timer by
			// what fires with a roll-up of its own.
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
			Discard:     jetstream.DiscardNew, // a full stream refuses; it never drops a slot
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

// Streams names every stream that a namespace may have, its buckets' included.
func Streams(namespace string) []string {
	var names []string
	for _, cfg := range layout(namespace, job.Settings{}, true) {
		names = append(names, cfg.Name)
	}
	return names
}

func timerStream(namespace string) string { return namespace + "_timers" }

// difference is one setting of something on the broker that is not as it has
// to be.
type difference struct {
	where, field, found, want string

	// fixed says that the server cannot change it.
	fixed bool
	// tolerated says that nodes work with it all the same: a namespace that was made by
	// an older version has it until Setup runs.
	tolerated bool
	// mend puts the wanted value into a configuration.
	mend func(*jetstream.StreamConfig)
}

func (d difference) String() string {
	return fmt.Sprintf("%s has %s %s, not %s", d.where, d.field, d.found, d.want)
}

// Differences that nodes work with all the same.
const (
	FieldRollup  = "roll-up and purge"
	FieldBatches = "atomic batches"
)

// differences compares what matters, and only that: a size limit, a placement
// or a description is the operator's, but for the size limit of the timers, which
// would drop some.
func differences(found, want jetstream.StreamConfig) []difference {
	var all []difference
	check := func(field string, found, wanted any, mend func(*jetstream.StreamConfig)) {
		if f, w := fmt.Sprint(found), fmt.Sprint(wanted); f != w {
			all = append(all, difference{where: title(want.Name), field: field, found: f, want: w, fixed: mend == nil, mend: mend})
		}
	}
	// A limit makes room by dropping what is stored, unless new is discarded.
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

// title names a stream as its users know it.
func title(stream string) string {
	if bucket, ok := strings.CutPrefix(stream, "KV_"); ok {
		return "bucket " + bucket
	}
	return "stream " + stream
}

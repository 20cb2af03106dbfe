// Package layout describes what a namespace consists of on the broker: its streams and buckets with
// their configuration (layout.go), the logins, their roles and the permissions that a server
// reports for a login (access.go), the subjects that each role needs (rights.go), and the accounts
// that isolate logins (accounts.go). It is pure: it has no connection.
package layout

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/job"
)

// nodesTTL is the age at which the broker removes node records. It only cleans up and
// does not decide which nodes are alive, so it must be longer than any lease.
func nodesTTL(lease time.Duration) time.Duration { return max(time.Hour, 4*lease) }

// Keys of the state bucket. The locks have keys of their own.
const (
	SettingsKey  = "settings"
	WatermarkKey = "watermark"
	SweepKey     = "sweep"
)

// Configs returns the configurations of all streams of a namespace. The state bucket comes first,
// because it holds the settings that determine the others. A server before 2.12 (recent is false)
// supports neither message schedules nor atomic batches: Configs then leaves out the timer
// stream, and no stream allows batches.
func Configs(namespace string, set job.Settings, recent bool) []jetstream.StreamConfig {
	bucket := func(what string, ttl time.Duration) jetstream.StreamConfig {
		name := Bucket(namespace, what)
		return jetstream.StreamConfig{
			Name: "KV_" + name, Subjects: []string{"$KV." + name + ".>"},
			MaxMsgsPerSubject: 1, // with more, an older value would reappear when the newest expires
			MaxAge:            ttl,
			Discard:           jetstream.DiscardNew,
			// Like the buckets of nats.go, except that no message can remove other messages.
			// Otherwise a login that may write one key could empty the bucket with a
			// Nats-Rollup header.
			AllowRollup: false, DenyPurge: true, DenyDelete: true, AllowDirect: true,
			AllowAtomicPublish: recent && what != "nodes", // a heartbeat never waits for other writes
			Duplicates:         job.DefaultDuplicates,
			Replicas:           set.Replicas,
		}
	}
	events := codec.Map(exchange.KeptKinds(), func(kind job.EventKind) string { return namespace + ".event." + string(kind) + ".*" })
	all := []jetstream.StreamConfig{
		bucket("state", 0),
		bucket("jobs", 0),
		bucket("nodes", nodesTTL(set.Lease)),
		bucket("ledger", set.Retention),
	}
	if recent {
		// The timer stream is optional, so it comes before the required streams below. Otherwise
		// a creator that dies half-way could leave a namespace that counts as complete and has no
		// timers.
		all = append(all, jetstream.StreamConfig{
			Name: TimerStream(namespace), Subjects: []string{namespace + ".timer.>"},
			Description: "triggered runs that are not due yet, or that are due and wait for a worker",
			Retention:   jetstream.WorkQueuePolicy,
			Discard:     jetstream.DiscardOld, // message schedules require it, so the stream must have no limit that discards
			// The server requires roll-up on a stream with schedules: when a timer fires, it
			// uses a roll-up to replace the schedule with the fired message.
			Duplicates:  job.DefaultDuplicates,
			AllowDirect: true, AllowRollup: true, AllowMsgSchedules: true,
			Replicas: set.Replicas,
		})
	}
	return append(all, []jetstream.StreamConfig{
		{
			Name: WaitingStream(namespace), Subjects: []string{namespace + ".wait.*"},
			Description: "slots that wait until other slots of their jobs have ended",
			Discard:     jetstream.DiscardNew,
			MaxAge:      set.Retention, // a slot waits no longer than the horizon, which is shorter
			Duplicates:  job.DefaultDuplicates,
			AllowDirect: true,
			Replicas:    set.Replicas,
		},
		{
			Name: SlotStream(namespace), Subjects: []string{namespace + ".slot.>"},
			Description: "slots to run, until they have an outcome",
			Retention:   jetstream.WorkQueuePolicy,
			Discard:     jetstream.DiscardNew, // a full stream refuses new slots; it never drops one
			Duplicates:  set.Duplicates,
			AllowDirect: true, AllowAtomicPublish: recent,
			Replicas: set.Replicas,
		},
		{
			Name: EventStream(namespace), Subjects: events,
			Description: "events that report an exception",
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
	return codec.Map(Configs(namespace, job.Settings{}, true), func(cfg jetstream.StreamConfig) string { return cfg.Name })
}

// SlotStream, WaitingStream, TimerStream and EventStream return the names of a namespace's streams.
func SlotStream(namespace string) string { return namespace + "_slots" }

func WaitingStream(namespace string) string { return namespace + "_waiting" }

func TimerStream(namespace string) string { return namespace + "_timers" }

// TimersOf returns the pattern of the subjects of a job's timers. "*" stands for every job.
func TimersOf(namespace, name string) string { return namespace + ".timer.set." + name + ".>" }

func EventStream(namespace string) string { return namespace + "_events" }

// bulkSuffix distinguishes the bulk lane of a queue. No queue's name contains "=".
const bulkSuffix = "=bulk"

// BulkLane returns the name of a queue's second lane: in the subjects of its messages, and as the name
// of their consumer. It has what may come in thousands at once, such as triggered runs, so that
// slots that are due now do not wait behind them.
func BulkLane(queue string) string { return queue + bulkSuffix }

// LaneOf returns the queue of a lane, and whether it is the queue's bulk lane.
func LaneOf(name string) (queue string, bulk bool) { return strings.CutSuffix(name, bulkSuffix) }

// Bucket returns the name of a namespace's bucket: "ledger", "jobs", "nodes" or "state".
func Bucket(namespace, what string) string { return namespace + "_" + what }

// Difference is a setting on the broker that differs from the wanted one. For example: "bucket
// cronce_jobs" has "storage" "Memory", not "File".
type Difference struct {
	Where, Field, Found, Want string

	// Remove is the command that removes the stream, bucket or consumer with all its data, if the
	// server cannot change the setting. Otherwise it is empty, and Setup mends the setting.
	Remove string
	// Tolerated is true if nodes can work with the found value. Namespaces that an older
	// version created have such a difference until Setup runs.
	Tolerated bool
	// Mend sets the wanted value in a configuration. It is nil if the server
	// cannot change the setting, or if a consumer has it.
	Mend func(*jetstream.StreamConfig)
}

func (d Difference) String() string {
	return fmt.Sprintf("%s has %s %s, not %s", d.Where, d.Field, d.Found, d.Want)
}

// Values of Difference.Field. Nodes tolerate all but the last.
const (
	FieldRollup      = "roll-up and purge"
	FieldBatches     = "atomic batches"
	FieldOrders      = "kept orders"
	FieldMessageSize = "limit of a message's size"
	FieldReplicas    = "replicas"
)

// EnoughPayload is the smallest limit of a message's size with which a server or a stream accepts every
// payload, and every usual output, uncut.
const EnoughPayload = 512 << 10

// Differences returns how the configuration of an existing stream differs from the wanted one. It
// compares only the settings that Cronce depends on. Size limits, placement and descriptions are
// the operator's choice, as long as a size limit does not make the server drop slots, timers or
// values of buckets.
func Differences(found, want jetstream.StreamConfig) []Difference {
	var all []Difference
	check := func(field string, found, wanted any, mend func(*jetstream.StreamConfig)) { // nil mend: the server cannot change it
		if f, w := fmt.Sprint(found), fmt.Sprint(wanted); f != w {
			d := Difference{Where: Title(want.Name), Field: field, Found: f, Want: w, Mend: mend}
			if mend == nil {
				d.Remove = removal(want.Name)
			}
			all = append(all, d)
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
	if sorted(append(slices.Clone(found.Subjects), ordersSubject(want))) == sorted(want.Subjects) {
		all[len(all)-1].Field, all[len(all)-1].Tolerated = FieldOrders, true
	}
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
	tolerate := func() { all[len(all)-1].Tolerated = true }
	if want.DenyPurge && (found.AllowRollup || !found.DenyPurge) {
		check(FieldRollup, "allowed", "denied", func(c *jetstream.StreamConfig) { c.AllowRollup, c.DenyPurge = false, true })
		tolerate()
	}
	if want.AllowAtomicPublish && !found.AllowAtomicPublish {
		check(FieldBatches, "denied", "allowed", func(c *jetstream.StreamConfig) { c.AllowAtomicPublish = true })
		tolerate()
	}
	if found.MaxMsgSize > 0 && found.MaxMsgSize < EnoughPayload {
		check(FieldMessageSize, found.MaxMsgSize, fmt.Sprintf("at least %d", EnoughPayload), func(c *jetstream.StreamConfig) { c.MaxMsgSize = -1 })
		tolerate()
	}
	if want.Retention == jetstream.WorkQueuePolicy {
		check("duplicate window", found.Duplicates, want.Duplicates, func(c *jetstream.StreamConfig) { c.Duplicates = want.Duplicates })
	}
	if want.Replicas != 0 {
		check(FieldReplicas, found.Replicas, want.Replicas, func(c *jetstream.StreamConfig) { c.Replicas = want.Replicas })
	}
	return all
}

// ordersSubject returns the subject of the events that report an operator's order. The events
// stream of a namespace that an older version created does not store them.
func ordersSubject(want jetstream.StreamConfig) string {
	namespace, _ := strings.CutSuffix(want.Name, "_events")
	return namespace + ".event." + string(job.EventOrdered) + ".*"
}

func sorted(subjects []string) string {
	subjects = slices.Clone(subjects)
	slices.Sort(subjects)
	return strings.Join(subjects, ",")
}

// Title returns the name of a stream or bucket for messages to users.
func Title(stream string) string {
	if bucket, ok := strings.CutPrefix(stream, "KV_"); ok {
		return "bucket " + bucket
	}
	return "stream " + stream
}

// removal returns the command that removes a stream or bucket.
func removal(stream string) string {
	if bucket, ok := strings.CutPrefix(stream, "KV_"); ok {
		return "nats kv del " + bucket
	}
	return "nats stream rm " + stream
}

// WorkerGroup is the priority group of every queue. The server serves the requests with
// the lowest priority number first.
const WorkerGroup = "workers"

// AlertConsumer is the durable consumer of alerts on the stream of events.
const AlertConsumer = "alerts"

// OnConsumers returns the names of the durable consumers whose messages start a job of a
// namespace. One of them is in use. After an edit, the other one serves the new
// plan while the first drains. There are exactly two because permissions list them by
// name: a login for the messages of one job has no permission on other consumers of the
// stream. Neither a namespace nor a job name contains "=", so no other job has the same names.
func OnConsumers(namespace, name string) []string {
	first := "cronce_" + namespace + "=" + name
	return []string{first, first + "=2"}
}

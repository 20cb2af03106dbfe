package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cronce-io/cronce/internal/fleet/replica"
)

// reading is a metric whose value is asked for at each scrape.
type reading struct {
	desc *prometheus.Desc
	kind prometheus.ValueType

	// values gives each series to set: none while there is nothing to say.
	values func(s replica.Stats, set func(value float64, labels ...string))
}

// state are all metrics that are asked for.
var state = []reading{
	gauge("cronce_build_info", `1, with the program's version and that of its time zone data.`,
		func(s replica.Stats, set func(float64, ...string)) { set(1, s.Version, s.Tzdata) }, "version", "tzdata"),
	gauge("cronce_broker_connected", `1 while there is a connection to NATS.`, one(func(s replica.Stats) float64 { return truth(s.Connected) })),
	total("cronce_broker_reconnects_total", `Times that the connection to NATS was lost and found again.`, func(s replica.Stats) float64 { return float64(s.Reconnects) }),
	gauge("cronce_node_trust_seconds", `For how long this node trusts itself if no further heartbeat is acknowledged; 0 or less: it runs nothing.`,
		one(func(s replica.Stats) float64 { return s.Trust.Seconds() })),
	gauge("cronce_node_owed_slots", `Slots that this process has claimed and not recorded, or is about to claim.`,
		one(func(s replica.Stats) float64 { return float64(s.Owed) })),
	gauge("cronce_node_stuck_handlers", `Handlers that have not returned when the grace had passed after the end of their context.`,
		one(func(s replica.Stats) float64 { return float64(s.Stuck) })),
	gauge("cronce_clock_offset_seconds", `The broker's clock minus this machine's.`, clockKnown(func(s replica.Stats) float64 { return s.ClockOffset.Seconds() })),
	gauge("cronce_clock_error_seconds", `How far the broker's clock may be from what this node takes it for.`,
		clockKnown(func(s replica.Stats) float64 { return s.ClockError.Seconds() })),
	gauge("cronce_watermark_lag_seconds", `How long ago the time lies up to which all slots are known to be published, as asked every 5 s.`,
		func(s replica.Stats, set func(float64, ...string)) {
			if s.Clock && !s.Watermark.IsZero() {
				set(max(s.Now.Sub(s.Watermark), 0).Seconds())
			}
		}),
	gauge("cronce_queue_waiting_slots", `Slots that no worker has been given yet, as the broker counts them.`, queues(func(b backlog) (float64, bool) { return float64(b.Waiting), true }), "queue"),
	gauge("cronce_queue_taken_slots", `Slots that a worker was given and that have no outcome: they run, or wait for their next attempt or their turn.`,
		queues(func(b backlog) (float64, bool) { return float64(b.Taken), true }), "queue"),
	gauge("cronce_queue_age_seconds", `How long the oldest slot has been waiting that no worker has been given; 0 when none waits.`, queues(backlog.age), "queue"),
	gauge("cronce_queue_withheld", `1 while this node takes no slots of the queue since a service that its jobs need is not ready.`,
		func(s replica.Stats, set func(float64, ...string)) {
			for queue, withheld := range s.Withheld {
				set(truth(withheld), queue)
			}
		}, "queue"),
	produced("cronce_producer_published_total", `Slots that this node published and the broker has stored, or had.`, func(s stats) uint64 { return s.Published }),
	produced("cronce_producer_folded_total", `Slots of those that the broker had already, from another node.`, func(s stats) uint64 { return s.Folded }),
	produced("cronce_producer_retries_total", `Publications that failed and were repeated.`, func(s stats) uint64 { return s.Retried }),
	produced("cronce_producer_stood_by_total", `Slots that another node published while this one held its copy.`, func(s stats) uint64 { return s.StoodBy }),
	produced("cronce_producer_missed_total", `Slots that were published as missed, by their job's catch-up policy.`, func(s stats) uint64 { return s.Missed }),
	produced("cronce_producer_caught_up_total", `Slots that were published late, by their job's catch-up policy.`, func(s stats) uint64 { return s.CaughtUp }),
	gauge("cronce_producer_standing_slots", `Copies that are held for other producers.`, one(func(s replica.Stats) float64 { return float64(s.Producer.Standby) })),
}

func gauge(name, help string, values func(replica.Stats, func(float64, ...string)), labels ...string) reading {
	return reading{prometheus.NewDesc(name, help, labels, nil), prometheus.GaugeValue, values}
}

func total(name, help string, value func(replica.Stats) float64) reading {
	return reading{prometheus.NewDesc(name, help, nil, nil), prometheus.CounterValue, one(value)}
}

func produced(name, help string, value func(stats) uint64) reading {
	return total(name, help, func(s replica.Stats) float64 { return float64(value(s.Producer)) })
}

// one is the value of a metric without labels.
func one(value func(replica.Stats) float64) func(replica.Stats, func(float64, ...string)) {
	return func(s replica.Stats, set func(float64, ...string)) { set(value(s)) }
}

func clockKnown(value func(replica.Stats) float64) func(replica.Stats, func(float64, ...string)) {
	return func(s replica.Stats, set func(float64, ...string)) {
		if s.Clock {
			set(value(s))
		}
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// collect reads all of state.
func collect(s replica.Stats, ch chan<- prometheus.Metric) {
	for _, r := range state {
		r.values(s, func(value float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(r.desc, r.kind, value, labels...)
		})
	}
}

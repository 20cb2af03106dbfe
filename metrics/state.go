package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cronce-io/cronce"
	"github.com/cronce-io/cronce/producer"
)

// reading is a metric whose value is read at each scrape.
type reading struct {
	desc *prometheus.Desc
	kind prometheus.ValueType

	// values calls set for each series whose value is known.
	values func(s cronce.Stats, set func(value float64, labels ...string))
}

// state lists the metrics that are read at each scrape.
var state = []reading{
	gauge("cronce_build_info", `1. The labels are the versions of the program and of its time zone data.`,
		func(s cronce.Stats, set func(float64, ...string)) { set(1, s.Version, s.Tzdata) }, "version", "tzdata"),
	gauge("cronce_broker_connected", `1 while there is a connection to NATS.`, one(func(s cronce.Stats) float64 { return truth(s.Connected) })),
	total("cronce_broker_reconnects_total", `Times that the connection to NATS was lost and restored.`, func(s cronce.Stats) float64 { return float64(s.Reconnects) }),
	gauge("cronce_node_trust_seconds", `How long this node still owns its claims if no further heartbeat is acknowledged; 0 or less: it runs nothing.`,
		one(func(s cronce.Stats) float64 { return s.Trust.Seconds() })),
	gauge("cronce_node_owed_slots", `Slots that this process works on, from the delivery of their message until it is answered and the handler has returned.`,
		one(func(s cronce.Stats) float64 { return float64(s.Owed) })),
	gauge("cronce_node_stuck_handlers", `Handlers that have not returned although their context has ended and the grace has passed.`,
		one(func(s cronce.Stats) float64 { return float64(s.Stuck) })),
	gauge("cronce_clock_offset_seconds", `The broker's clock minus this machine's.`, clockKnown(func(s cronce.Stats) float64 { return s.ClockOffset.Seconds() })),
	gauge("cronce_clock_error_seconds", `How far this node's estimate of the broker's clock may be wrong.`,
		clockKnown(func(s cronce.Stats) float64 { return s.ClockError.Seconds() })),
	gauge("cronce_watermark_lag_seconds", `How far the watermark, the time up to which all slots are published, is behind the broker's clock. It is read every 5 s.`,
		func(s cronce.Stats, set func(float64, ...string)) {
			if s.Clock && !s.Watermark.IsZero() {
				set(max(s.Now.Sub(s.Watermark), 0).Seconds())
			}
		}),
	gauge("cronce_queue_waiting_slots", `Slots that the broker has not delivered to a worker yet.`, queues(func(b backlog) (float64, bool) { return float64(b.Waiting), true }), "queue"),
	gauge("cronce_queue_taken_slots", `Slots that the broker has delivered and that have no outcome: they run, or wait for their next attempt or for another slot.`,
		queues(func(b backlog) (float64, bool) { return float64(b.Taken), true }), "queue"),
	gauge("cronce_queue_age_seconds", `How long the oldest slot that was not delivered has been waiting; 0 if none waits.`, queues(backlog.age), "queue"),
	gauge("cronce_queue_withheld", `1 while this node takes no slots from the queue, because a service that its jobs need is not ready.`,
		func(s cronce.Stats, set func(float64, ...string)) {
			for queue, withheld := range s.Withheld {
				set(truth(withheld), queue)
			}
		}, "queue"),
	produced("cronce_producer_published_total", `Slots that this node published and the broker acknowledged, duplicates included.`, func(s producer.Stats) uint64 { return s.Published }),
	produced("cronce_producer_folded_total", `Published slots that the broker already had.`, func(s producer.Stats) uint64 { return s.Folded }),
	produced("cronce_producer_retries_total", `Publications that failed and were repeated.`, func(s producer.Stats) uint64 { return s.Retried }),
	produced("cronce_producer_stood_by_total", `Slots that another node published while this one held a copy.`, func(s producer.Stats) uint64 { return s.StoodBy }),
	produced("cronce_producer_missed_total", `Slots that were published as missed, by their job's catch-up policy.`, func(s producer.Stats) uint64 { return s.Missed }),
	produced("cronce_producer_caught_up_total", `Slots that were published late, by their job's catch-up policy.`, func(s producer.Stats) uint64 { return s.CaughtUp }),
	gauge("cronce_producer_standing_slots", `Copies that this node holds while another producer publishes.`, one(func(s cronce.Stats) float64 { return float64(s.Producer.Standby) })),
}

func gauge(name, help string, values func(cronce.Stats, func(float64, ...string)), labels ...string) reading {
	return reading{prometheus.NewDesc(name, help, labels, nil), prometheus.GaugeValue, values}
}

func total(name, help string, value func(cronce.Stats) float64) reading {
	return reading{prometheus.NewDesc(name, help, nil, nil), prometheus.CounterValue, one(value)}
}

func produced(name, help string, value func(producer.Stats) uint64) reading {
	return total(name, help, func(s cronce.Stats) float64 { return float64(value(s.Producer)) })
}

// one returns the value of a metric without labels.
func one(value func(cronce.Stats) float64) func(cronce.Stats, func(float64, ...string)) {
	return func(s cronce.Stats, set func(float64, ...string)) { set(value(s)) }
}

func clockKnown(value func(cronce.Stats) float64) func(cronce.Stats, func(float64, ...string)) {
	return func(s cronce.Stats, set func(float64, ...string)) {
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

// collect sends the values of all of state.
func collect(s cronce.Stats, ch chan<- prometheus.Metric) {
	for _, r := range state {
		r.values(s, func(value float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(r.desc, r.kind, value, labels...)
		})
	}
}

// backlog is the work of a queue, as seen at the time now.
type backlog struct {
	cronce.Backlog
	now time.Time
}

// age returns how long the oldest slot has been waiting, if that is known.
func (b backlog) age() (seconds float64, known bool) {
	if b.Waiting == 0 {
		return 0, true
	}
	return max(b.now.Sub(b.Oldest), 0).Seconds(), !b.Oldest.IsZero()
}

// queues returns a value for each queue whose value is known.
func queues(value func(backlog) (float64, bool)) func(cronce.Stats, func(float64, ...string)) {
	return func(s cronce.Stats, set func(float64, ...string)) {
		for name, b := range s.Queues {
			if v, known := value(backlog{b, s.Now}); known {
				set(v, name)
			}
		}
	}
}

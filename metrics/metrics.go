package metrics

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cronce-io/cronce"
	"github.com/cronce-io/cronce/job"
)

const (
	// MaxJobs bounds the jobs that have series of their own.
	MaxJobs = 200

	// OtherJobs is the label job of all further jobs. No job can have this name.
	OtherJobs = "(other)"
)

// Metrics measures one Scheduler. Register it with a prometheus.Registerer, and pass it to
// cronce.WithObserver: they call its methods. It is safe for concurrent use.
type Metrics struct {
	lateness, run, ledger         *prometheus.HistogramVec
	attempts, waits, ledgerErrors *prometheus.CounterVec
	outcomes, retries             *prometheus.CounterVec
	lastSuccess                   *prometheus.GaugeVec
	running                       *prometheus.GaugeVec
	takeovers, refused, fences    prometheus.Counter
	heartbeats, leases, offered   prometheus.Counter
	ledgerRead, ledgerWrite       prometheus.Observer
	ledgerReadErr, ledgerWriteErr prometheus.Counter
	all                           []prometheus.Collector
	stats                         atomic.Pointer[func() cronce.Stats]
	queues, jobs                  sync.Map // name -> *queue, *perJob
	known                         atomic.Int64
}

// queue has the series of one queue.
type queue struct {
	lateness, run   prometheus.Observer
	attempts, waits prometheus.Counter
	running         prometheus.Gauge
}

// perJob has the series of one job, or of all further jobs.
type perJob struct {
	label                      string
	succeeded, failed, retries prometheus.Counter

	// lastSuccess creates the series at the first success: before, its value would mean 1970.
	lastSuccess func() prometheus.Gauge
}

// New returns a Metrics that has measured nothing.
func New() *Metrics {
	m := &Metrics{}
	m.lateness = m.histogram("cronce_slot_lateness_seconds", `How long after its due time the first attempt of a slot started, for slots that were published on time.`,
		[]float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}, "queue")
	m.run = m.histogram("cronce_slot_run_seconds", `How long a handler ran, once per attempt.`,
		[]float64{.005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 1800, 7200}, "queue")
	m.attempts = m.counters("cronce_slot_attempts_total", `Handlers that were started.`, "queue")
	m.running = m.gauges("cronce_slots_running", `Handlers that have not returned.`, "queue")
	m.waits = m.counters("cronce_slot_waits_total", `Slots that this node put into their job's line, because other slots of the job had to end before.`, "queue")
	m.outcomes = m.counters("cronce_slot_outcomes_total", `Outcomes that this node recorded. A range of missed slots is one.`, "job", "state")
	m.retries = m.counters("cronce_slot_retries_total", `Attempts that failed and are followed by another one.`, "job")
	m.lastSuccess = m.gauges("cronce_job_last_success_timestamp_seconds", `When this node last recorded a success of the job, by the broker's clock. Absent before the first one.`, "job")
	m.takeovers = m.counter("cronce_slot_takeovers_total", `Slots of dead nodes that this node claimed.`)
	m.refused = m.counter("cronce_slot_refused_completions_total", `Completions that came too late: the slot had been taken over.`)
	m.fences = m.counter("cronce_node_fences_total", `Silent nodes that this node declared dead.`)
	m.heartbeats = m.counter("cronce_node_heartbeat_failures_total", `Heartbeats of this node that were refused or not answered.`)
	m.leases = m.counter("cronce_node_leases_lost_total", `Times that this node lost its lease and started again under a new name.`)
	m.offered = m.counter("cronce_sweep_offers_total", `Slots whose message was lost and that this node offered again.`)
	m.ledger = m.histogram("cronce_ledger_request_seconds", `How long a request to the ledger took until it was answered, repetitions included.`,
		[]float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5, 15}, "request")
	m.ledgerErrors = m.counters("cronce_ledger_errors_total", `Requests to the ledger that were refused, or not answered before their timeout.`, "request")
	m.ledgerRead, m.ledgerWrite = m.ledger.WithLabelValues("read"), m.ledger.WithLabelValues("write")
	m.ledgerReadErr, m.ledgerWriteErr = m.ledgerErrors.WithLabelValues("read"), m.ledgerErrors.WithLabelValues("write")
	return m
}

func (m *Metrics) counter(name, help string) prometheus.Counter {
	return add(m, prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help}))
}

func (m *Metrics) counters(name, help string, labels ...string) *prometheus.CounterVec {
	return add(m, prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels))
}

func (m *Metrics) gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	return add(m, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels))
}

func (m *Metrics) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return add(m, prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels))
}

func add[C prometheus.Collector](m *Metrics, c C) C {
	m.all = append(m.all, c)
	return c
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.all {
		c.Describe(ch)
	}
	for _, d := range state {
		ch <- d.desc
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.all {
		c.Collect(ch)
	}
	if stats := m.stats.Load(); stats != nil {
		collect((*stats)(), ch)
	}
}

// Follow implements cronce.Observer: a scrape reads the values that stats returns.
func (m *Metrics) Follow(stats func() cronce.Stats) { m.stats.Store(&stats) }

// queue returns the series of a queue.
func (m *Metrics) queue(name string) *queue {
	if q, ok := m.queues.Load(name); ok {
		return q.(*queue)
	}
	q, _ := m.queues.LoadOrStore(name, &queue{
		m.lateness.WithLabelValues(name), m.run.WithLabelValues(name), m.attempts.WithLabelValues(name),
		m.waits.WithLabelValues(name), m.running.WithLabelValues(name),
	})
	return q.(*queue)
}

// Started implements cronce.Observer.
func (m *Metrics) Started(queue string, late time.Duration, planned bool) {
	q := m.queue(queue)
	q.attempts.Inc()
	q.running.Inc()
	if planned {
		q.lateness.Observe(max(late, 0).Seconds())
	}
}

// Returned implements cronce.Observer.
func (m *Metrics) Returned(queue string, took time.Duration) {
	q := m.queue(queue)
	q.running.Dec()
	q.run.Observe(took.Seconds())
}

// Waits implements cronce.Observer.
func (m *Metrics) Waits(queue string) { m.queue(queue).waits.Inc() }

// job returns the series of a job: its own, or those of all further jobs.
func (m *Metrics) job(name string) *perJob {
	if j, ok := m.jobs.Load(name); ok {
		return j.(*perJob)
	}
	if name != OtherJobs && m.known.Load() >= MaxJobs {
		return m.job(OtherJobs)
	}
	j, loaded := m.jobs.LoadOrStore(name, &perJob{
		name, m.outcomes.WithLabelValues(name, string(job.Succeeded)), m.outcomes.WithLabelValues(name, string(job.Failed)),
		m.retries.WithLabelValues(name), sync.OnceValue(func() prometheus.Gauge { return m.lastSuccess.WithLabelValues(name) }),
	})
	if !loaded && name != OtherJobs {
		m.known.Add(1)
	}
	return j.(*perJob)
}

// Event implements cronce.Observer.
func (m *Metrics) Event(e job.Event) {
	switch e.Kind {
	case job.EventFenced:
		m.fences.Inc()
	case job.EventTakeover:
		m.takeovers.Inc()
	case job.EventRefused:
		m.refused.Inc()
	case job.EventRetrying:
		m.job(e.Job).retries.Inc()
	case job.EventSucceeded:
		j := m.job(e.Job)
		j.succeeded.Inc()
		j.lastSuccess().Set(seconds(e.Time))
	case job.EventFailed:
		m.job(e.Job).failed.Inc()
	default:
		if state := job.State(e.Kind); state.Final() {
			m.outcomes.WithLabelValues(m.job(e.Job).label, string(state)).Inc()
		}
	}
}

// Ledger implements cronce.Observer.
func (m *Metrics) Ledger(request string, took time.Duration, failed error) {
	answered, errors := m.ledgerRead, m.ledgerReadErr
	if request == "write" {
		answered, errors = m.ledgerWrite, m.ledgerWriteErr
	}
	if failed != nil {
		errors.Inc()
	}
	answered.Observe(took.Seconds())
}

// HeartbeatFailed implements cronce.Observer.
func (m *Metrics) HeartbeatFailed() { m.heartbeats.Inc() }

// LeaseLost implements cronce.Observer.
func (m *Metrics) LeaseLost() { m.leases.Inc() }

// Offered implements cronce.Observer.
func (m *Metrics) Offered() { m.offered.Inc() }

func seconds(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }

package alert

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/action/httpaction"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// Feed delivers messages. *space.Feed implements it.
type Feed interface {
	Each(ctx context.Context, n int, handle func(jetstream.Msg)) error
}

// Registry holds the job definitions.
type Registry interface {
	// Lookup returns the definition as of registry revision atLeast or later.
	Lookup(ctx context.Context, name string, atLeast uint64) (plans.Entry, error)

	// Alerting reports whether any job asks for alerts.
	Alerting() bool
}

// Config of a Deliverer. All fields except Logger are required.
type Config struct {
	Namespace string

	// Open returns the feed of undelivered alerts. It is called again after a failure.
	Open     func(ctx context.Context) (Feed, error)
	Registry Registry

	// Request sends a message and waits for its first answer; (*kv.Store).Request is one.
	Request func(context.Context, *nats.Msg) (*nats.Msg, error)

	// State returns the stored alert state of a job, which says whether the job is in trouble.
	State func(ctx context.Context, name string) (exchange.AlertState, error)

	// Emit stores an event. It must not block.
	Emit func(job.Event)

	// MaxPayload returns the size of the largest message that the server takes, in bytes, or 0 if
	// it is not known.
	MaxPayload func() int

	// Now is the broker's clock.
	Now func() time.Time

	// Getenv returns the value of an environment variable that an alert names.
	Getenv func(string) string

	// Logger defaults to none.
	Logger *slog.Logger
}

// Deliverer delivers alerts; see Run.
type Deliverer struct {
	cfg       Config
	transport *http.Transport
	targets   *targets

	mu       sync.Mutex
	reported map[string]time.Time // by job and kind, when report last stored an event
}

const (
	// askLimit bounds the questions about the job before a delivery, and limit the delivery. Their
	// sum is below the ack wait of the consumer. So an alert is not redelivered while it is handled.
	askLimit = 10 * time.Second
	limit    = 20 * time.Second

	// maxDelay is the longest time between two tries of one alert, unless its target asks for a
	// longer one.
	maxDelay = 10 * time.Minute

	// pollInterval is how often Run checks whether any job asks for alerts, and the pause
	// after a failure.
	pollInterval = 5 * time.Second

	// deniedPause is the pause of a node whose login may not deliver alerts.
	deniedPause = 10 * time.Minute
)

// New returns a Deliverer.
func New(cfg Config) *Deliverer {
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	return &Deliverer{cfg: cfg, transport: httpaction.NewTransport(), targets: newTargets(time.Now), reported: map[string]time.Time{}}
}

// Run delivers alerts until ctx ends. It returns when its goroutines have ended.
func (d *Deliverer) Run(ctx context.Context) {
	defer d.transport.CloseIdleConnections()
	for ctx.Err() == nil {
		pause := pollInterval
		if d.cfg.Registry.Alerting() {
			switch err := d.deliver(ctx); {
			case err == nil || ctx.Err() != nil:
			case errors.Is(err, job.ErrDenied):
				d.cfg.Logger.Info("this node does not deliver alerts: its login may not, or setup has not created their consumer", "error", err, "fix", "cronce setup")
				pause = deniedPause
			default:
				d.cfg.Logger.Warn("cannot read alerts, will retry", "error", err)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// deliver delivers alerts until the feed fails or no job asks for alerts. It takes the next
// alert without waiting for running deliveries: an alert whose target is busy or failing
// goes back to the broker at once.
func (d *Deliverer) deliver(ctx context.Context) error {
	feed, err := d.cfg.Open(ctx)
	if err != nil {
		return err
	}
	var deliveries sync.WaitGroup
	defer deliveries.Wait()
	for err == nil && d.cfg.Registry.Alerting() && ctx.Err() == nil {
		err = feed.Each(ctx, maxDeliveries, func(m jetstream.Msg) {
			deliveries.Go(func() { d.handle(ctx, m) })
		})
	}
	return err
}

// handle delivers the alert of one message, and acks the message or returns it to the broker.
func (d *Deliverer) handle(ctx context.Context, m jetstream.Msg) {
	e, err := exchange.DecodeEvent(m.Data())
	if err == nil {
		err = exchange.CheckEventSubject(e, m.Subject())
	}
	switch {
	case errors.Is(err, job.ErrVersion):
		_ = m.NakWithDelay(maxDelay) // a newer program can read it
		return
	case err != nil:
		d.cfg.Logger.Error("message dropped: it is not an event", "subject", m.Subject(), "error", err)
		_ = m.TermWithReason("not an event")
		return
	case e.Alert == "":
		_ = m.Ack()
		return
	}
	log := d.cfg.Logger.With("slot", e.ID, "alert", e.Alert)
	var busy postponed
	switch err := d.send(ctx, e); {
	case err == nil:
		log.Info("alert delivered")
		_ = m.Ack()
	case errors.Is(err, errUnwanted):
		log.Info("alert dropped: its job no longer asks for it")
		_ = m.Ack()
	case errors.Is(err, errOver), errors.Is(err, errOld):
		log.Info("alert dropped: it came too late", "error", err)
		_ = m.Ack()
	case ctx.Err() != nil: // the broker redelivers it
	case errors.As(err, &busy):
		_ = m.NakWithDelay(postponedDelay(m, busy))
	default:
		delay := retryDelay(m)
		if asked, ok := job.RetryDelay(err); ok {
			delay = max(delay, asked) // httpaction bounds asked to an hour
		}
		log.Warn("alert not delivered", "error", err, "delay", delay)
		if hopeless := (hopelessError{}); errors.As(err, &hopeless) {
			d.report(e, err)
		}
		_ = m.NakWithDelay(delay)
	}
}

// reportEvery is how often a node reports that the alerts of a job are hopeless.
const reportEvery = exchange.UndeliverableAge / 2

// report stores an event that says why the alerts of a job cannot be delivered, for "cronce doctor".
func (d *Deliverer) report(e job.Event, why error) {
	about, now := e.Job+" "+string(e.Alert), time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	if now.Sub(d.reported[about]) < reportEvery {
		return
	}
	if len(d.reported) >= maxTargets {
		clear(d.reported)
	}
	d.reported[about] = now
	d.cfg.Emit(exchange.NewUndeliverable(e, why))
}

var (
	errUnwanted = errors.New("no target")
	errOver     = errors.New("the job has recovered")
	errOld      = fmt.Errorf("heartbeat is older than %v", job.MaxHeartbeatAge)
)

// postponed means that an alert was not tried, because its target is busy or failing. Its
// value is the delay before the next try.
type postponed time.Duration

func (p postponed) Error() string { return "target is busy or failing" }

// postponedDelay returns the delay of an alert that was not tried. If its target is not only busy
// but failing, the alert waits at least as long as after a failed try. Otherwise many alerts for one
// failing target would be redelivered every minute.
func postponedDelay(m jetstream.Msg, p postponed) time.Duration {
	wait := time.Duration(p)
	if wait <= busyDelay {
		return wait
	}
	return max(wait, retryDelay(m))
}

// retryDelay returns the delay before the next try: 2 s, doubled with each delivery.
func retryDelay(m jetstream.Msg) time.Duration {
	meta, err := m.Metadata()
	if err != nil {
		return maxDelay
	}
	return min(time.Second<<min(meta.NumDelivered, 20), maxDelay)
}

// send delivers the alert to the target that the job has now.
func (d *Deliverer) send(ctx context.Context, e job.Event) error {
	slot, err := job.ParseSlotID(e.ID)
	if err != nil || slot.Job != e.Job {
		return errUnwanted // no node publishes such an event
	}
	asking, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	entry, err := d.cfg.Registry.Lookup(asking, e.Job, e.JobRevision)
	if errors.Is(err, job.ErrNotFound) {
		return errUnwanted
	}
	if err != nil {
		return fmt.Errorf("look up job %s: %w", e.Job, err)
	}
	if e.Alert == job.AlertHeartbeat {
		return d.callHeartbeat(ctx, entry.Job, slot, e)
	}
	target := exchange.AlertAbout(entry.Job, e.Alert)
	if target == nil {
		return errUnwanted
	}
	if target.Format == "pagerduty" {
		switch over := d.isOver(asking, e); {
		case over:
			return errOver
		case asking.Err() != nil:
			return fmt.Errorf("read the alert state of job %s: %w", e.Job, asking.Err())
		}
	}
	m, err := d.fittingMessage(*target, slot, e)
	switch {
	case err != nil:
		return err
	case target.HTTP != nil:
		return d.call(ctx, http.MethodPost, *target.HTTP, m)
	}
	return d.limited(ctx, target.NATS.Subject, "", func(ctx context.Context) error {
		return d.publish(ctx, target.NATS.Subject, m)
	})
}

// callHeartbeat calls the job's heartbeat. A heartbeat says that the job succeeds now, so an old one is
// dropped.
func (d *Deliverer) callHeartbeat(ctx context.Context, j job.Job, slot job.Slot, e job.Event) error {
	switch {
	case j.Heartbeat == nil:
		return errUnwanted
	case d.cfg.Now().Sub(e.Time) > job.MaxHeartbeatAge:
		return errOld
	}
	return d.call(ctx, http.MethodGet, *j.Heartbeat, message{slot: slot, event: e, key: d.idempotencyKey(e)})
}

// isOver reports whether the job has recovered from the failure that the alert is about. An
// alert that is retried may be delivered after the alert of the recovery. PagerDuty would then
// open an incident that nothing resolves. A state from before the failure proves nothing, even if its
// revision is larger: the ledger may have been created again, or restored.
func (d *Deliverer) isOver(ctx context.Context, e job.Event) bool {
	if e.Revision == 0 || e.Alert == job.AlertRecovered || e.Alert == job.Succeeded {
		return false
	}
	state, err := d.cfg.State(ctx, e.Job)
	return err == nil && !state.Failed && state.Revision > e.Revision && !state.Time.Before(e.Time)
}

// limited delivers to the target, at a host or not, or returns postponed if one of them is busy or failing.
func (d *Deliverer) limited(ctx context.Context, target, host string, send func(context.Context) error) error {
	if wait, ok := d.targets.acquire(target, host); !ok {
		return postponed(wait)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w of %v", job.ErrTimeout, limit))
	defer cancel()
	err := send(ctx)
	d.targets.release(target, host, resultOf(err))
	return err
}

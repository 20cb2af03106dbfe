package alert

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/action/httpaction"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// Feed hands out messages; *kv.Feed is one.
type Feed interface {
	Each(ctx context.Context, n int, handle func(jetstream.Msg)) error
}

// Registry knows the jobs' definitions.
type Registry interface {
	// Lookup returns the definition as of registry revision atLeast or later.
	Lookup(ctx context.Context, name string, atLeast uint64) (core.Entry, error)

	// Alerting reports whether any job has somebody told.
	Alerting() bool
}

// Config of a Deliverer. All fields are required but Logger.
type Config struct {
	Namespace string

	// Open returns what there is to deliver. It is called again after a failure.
	Open     func(ctx context.Context) (Feed, error)
	Registry Registry
	Conn     *nats.Conn

	// Getenv looks up the variables that alerts name.
	Getenv func(string) string

	// Logger: default none.
	Logger *slog.Logger
}

// Deliverer delivers alerts; see Run.
type Deliverer struct {
	cfg       Config
	transport *http.Transport
	targets   *targets
}

const (
	// limit bounds one delivery, far below the time after which an alert comes
	// again by itself.
	limit = 20 * time.Second

	// maxDelay is the longest time between two tries.
	maxDelay = 10 * time.Minute

	// look is how often it is seen whether there is anything to be alerted about,
	// and the pause after a failure.
	look = 5 * time.Second

	// denied is the pause of a node that may not deliver.
	denied = 10 * time.Minute
)

// New returns a Deliverer.
func New(cfg Config) *Deliverer {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Deliverer{cfg, httpaction.NewTransport(), newTargets(time.Now)}
}

// Run delivers until ctx ends. It owns its goroutines.
func (d *Deliverer) Run(ctx context.Context) {
	defer d.transport.CloseIdleConnections()
	for ctx.Err() == nil {
		pause := look
		if d.cfg.Registry.Alerting() {
			switch err := d.deliver(ctx); {
			case err == nil || ctx.Err() != nil:
			case errors.Is(err, job.ErrDenied):
				d.cfg.Logger.Info("this node delivers no alerts: its login may not, or they were not set up", "error", err, "set up", "cronce setup")
				pause = denied
			default:
				d.cfg.Logger.Warn("alerts cannot be had now; trying again", "error", err)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// deliver hands on alerts until something fails or no job wants any. It never waits for
// a delivery before it takes the next alert: an alert whose target is busy, or fails, is
// given back at once.
func (d *Deliverer) deliver(ctx context.Context) error {
	feed, err := d.cfg.Open(ctx)
	if err != nil {
		return err
	}
	var under sync.WaitGroup
	defer under.Wait()
	for err == nil && d.cfg.Registry.Alerting() && ctx.Err() == nil {
		err = feed.Each(ctx, atOnce, func(m jetstream.Msg) {
			under.Go(func() { d.one(ctx, m) })
		})
	}
	return err
}

// one sees to one message.
func (d *Deliverer) one(ctx context.Context, m jetstream.Msg) {
	e, err := job.DecodeEvent(m.Data())
	if err == nil {
		err = e.CheckSubject(m.Subject())
	}
	switch {
	case errors.Is(err, job.ErrVersion):
		_ = m.NakWithDelay(maxDelay) // for a newer program
		return
	case err != nil:
		d.cfg.Logger.Error("a message among the events is none; dropped", "subject", m.Subject(), "error", err)
		_ = m.TermWithReason("it is no event")
		return
	case e.Alert == "":
		_ = m.Ack()
		return
	}
	log := d.cfg.Logger.With("slot", e.ID, "alert", e.Alert)
	var put postponed
	switch err := d.tell(ctx, e); {
	case err == nil:
		log.Info("alert delivered")
		_ = m.Ack()
	case errors.Is(err, errNobody):
		log.Info("alert dropped: its job does not want it any more")
		_ = m.Ack()
	case ctx.Err() != nil: // it comes again
	case errors.As(err, &put):
		_ = m.NakWithDelay(d.later(m, put))
	default:
		delay := again(m)
		log.Warn("alert not delivered", "error", err, "again", delay)
		_ = m.NakWithDelay(delay)
	}
}

var errNobody = errors.New("nobody is to be told")

// postponed says that an alert was not tried, since its target has as much to do as it
// may, or fails: it is tried no sooner than this from now.
type postponed time.Duration

func (p postponed) Error() string { return "its target is busy, or fails" }

// later is the delay of an alert that was not tried. One that has waited for a target
// that fails for long waits as long as if it had been tried itself, so that many of
// them cost little.
func (d *Deliverer) later(m jetstream.Msg, put postponed) time.Duration {
	if wait := time.Duration(put); wait <= busy {
		return wait
	}
	return max(time.Duration(put), again(m))
}

// again is the delay before the next try: 2 s, doubled each time.
func again(m jetstream.Msg) time.Duration {
	meta, err := m.Metadata()
	if err != nil {
		return maxDelay
	}
	return min(time.Second<<min(meta.NumDelivered, 20), maxDelay)
}

// tell delivers the alert to whom the job has told of it now.
func (d *Deliverer) tell(ctx context.Context, e job.Event) error {
	slot, err := job.ParseSlotID(e.ID)
	if err != nil || slot.Job != e.Job {
		return errNobody // no worker writes that
	}
	entry, err := d.cfg.Registry.Lookup(ctx, e.Job, e.JobRevision)
	if errors.Is(err, job.ErrNotFound) {
		return errNobody
	}
	if err != nil {
		return fmt.Errorf("look up job %s: %w", e.Job, err)
	}
	target := entry.Job.AlertAbout(e.Alert)
	if target == nil {
		return errNobody
	}
	body, err := json.Marshal(e) // not what came: a message of many megabytes is no alert
	if err != nil {
		return err
	}
	if target.HTTP != nil {
		return d.post(ctx, *target.HTTP, slot, e, body)
	}
	return d.bounded(ctx, target.NATS.Subject, func(ctx context.Context) error {
		return d.publish(ctx, target.NATS.Subject, slot, e, body)
	})
}

// bounded delivers to the target, unless that has as much to do as it may, or fails.
func (d *Deliverer) bounded(ctx context.Context, target string, send func(context.Context) error) error {
	if wait, ok := d.targets.acquire(target); !ok {
		return postponed(wait)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w of %v", job.ErrTimeout, limit))
	defer cancel()
	err := send(ctx)
	d.targets.release(target, err != nil)
	return err
}

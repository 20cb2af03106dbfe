package cronce

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/fleet/replica"
	"github.com/cronce-io/cronce/job"
)

// Option changes how a Scheduler behaves. Bad values are errors of New.
type Option func(*config) error

type config struct {
	namespace     string
	domain        string
	queues        []string
	concurrency   int
	priority      int
	grace         time.Duration
	host          string
	produce, work bool
	endOnStuck    bool
	settings      job.Settings
	logger        *slog.Logger
	observer      Observer
	tracers       trace.TracerProvider
}

// WithNamespace separates applications that share an account: all names on the
// broker begin with it. By default "cronce".
func WithNamespace(name string) Option {
	return func(c *config) error {
		c.namespace = name
		return codec.ValidateName("namespace", name)
	}
}

// WithDomain names the JetStream domain that the namespace is in, for a connection
// to a leaf node. By default what answers on the connection.
func WithDomain(name string) Option {
	return func(c *config) error {
		c.domain = name
		return codec.ValidateName("domain", name)
	}
}

// WithQueues names the queues to work on. By default those of the jobs handled.
func WithQueues(queues ...string) Option {
	return func(c *config) error {
		for _, q := range queues {
			if err := codec.ValidateName("queue", q); err != nil {
				return err
			}
		}
		c.queues = queues
		return nil
	}
}

// WithConcurrency is how many handlers of each queue run at once in this
// replica. By default 16.
func WithConcurrency(n int) Option {
	return func(c *config) error {
		c.concurrency = n
		if n < 1 {
			return fmt.Errorf("%w concurrency %d: at least 1", job.ErrInvalid, n)
		}
		return nil
	}
}

// WithGrace is how long running handlers may go on after Run was told to stop,
// before their context is cancelled. By default 25 s; zero cancels at once.
func WithGrace(d time.Duration) Option {
	return func(c *config) error {
		c.grace = d
		switch {
		case d < 0:
			return fmt.Errorf("%w grace %v: must not be negative", job.ErrInvalid, d)
		case d == 0:
			c.grace = -1
		}
		return nil
	}
}

// WithEndOnStuck has Run end when a handler has not returned although its context
// ended, for whatever cause, more than the grace ago (at least 5 s): other handlers have
// their grace, and then Run returns an error that wraps job.ErrStuck. A handler cannot
// be killed: let the process end then, so that its slot is taken over. By default that
// is only told, in the log, in events and to the observer.
func WithEndOnStuck() Option {
	return func(c *config) error { c.endOnStuck = true; return nil }
}

// WithPriority is this replica's place in the line for slots, 0 (the default) to 9:
// a lower one takes them while it lives and has places free, the higher ones stand
// by and take over. Other than 0 it needs nats-server 2.12 or newer.
func WithPriority(n int) Option {
	return func(c *config) error {
		c.priority = n
		if n < 0 || n > core.MaxPriority {
			return fmt.Errorf("%w priority %d: 0 (first) to %d", job.ErrInvalid, n, core.MaxPriority)
		}
		return nil
	}
}

// WithNodeName replaces the host's name in the node's name; start and random
// part stay, so replicas may share it.
func WithNodeName(name string) Option {
	return func(c *config) error {
		c.host = name
		return codec.ValidateName("node", name)
	}
}

// WithoutProducing makes a replica that only works. Some other must produce.
func WithoutProducing() Option {
	return func(c *config) error { c.produce = false; return nil }
}

// WithoutWorking makes a replica that only publishes due slots.
func WithoutWorking() Option {
	return func(c *config) error { c.work = false; return nil }
}

// WithSettings asks for values that belong to the whole namespace: the first
// creator's hold, and New fails when they differ. By default, and for zero
// fields, what is stored is adopted.
func WithSettings(s job.Settings) Option {
	return func(c *config) error { c.settings = s; return s.Validate() }
}

// WithLogger says where to log. By default nothing is logged.
func WithLogger(l *slog.Logger) Option {
	return func(c *config) error { c.logger = l; return nil }
}

// Observer receives what a Scheduler does, for measuring: *metrics.Metrics is one, for
// Prometheus. Methods may be added to it.
type Observer = replica.Observer

// Stats is the state of a Scheduler, which an Observer can ask for at any time.
type Stats = replica.Stats

// WithObserver has the Scheduler measured. An observer belongs to one Scheduler. By
// default nothing is.
func WithObserver(o Observer) Option {
	return func(c *config) error { c.observer = o; return nil }
}

// WithTracerProvider has every slot traced: its publication, whatever the reason, and the claim, the run
// and the completion of each attempt are spans of one trace, which the handler's
// context goes on. Pass otel.GetTracerProvider() for the global one. By default
// nothing is traced, and nothing computed for it.
func WithTracerProvider(p trace.TracerProvider) Option {
	return func(c *config) error { c.tracers = p; return nil }
}

// version is the module's, as the build recorded it.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	const path = "github.com/cronce-io/cronce"
	if info.Main.Path == path {
		return info.Main.Version
	}
	for _, dep := range info.Deps {
		if dep.Path == path {
			return dep.Version
		}
	}
	return "unknown"
}

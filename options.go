package cronce

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/fleet/clock"
	"github.com/cronce-io/cronce/job"
)

// Option configures a Scheduler. New returns an error if a value is invalid or an option is nil. The
// names of namespaces, domains, queues and nodes have 1 to 64 characters of A-Z a-z 0-9 _ -.
type Option func(*config) error

type config struct {
	namespace        string
	domain           string
	queues           []string
	concurrency      int
	queueConcurrency map[string]int
	priority         int
	grace            time.Duration
	host             string
	produce, work    bool
	endOnStuck       bool
	settings         job.Settings
	logger           *slog.Logger
	observer         Observer
	tracers          trace.TracerProvider
	middleware       []func(job.Handler) job.Handler
	errorHook        func(job.Failure)
	clock            *clock.Clock // nil: the broker's clock is measured
}

// WithNamespace sets the namespace, with which the names of all streams, buckets and subjects
// begin. It separates applications that share an account. Default: job.DefaultNamespace.
func WithNamespace(name string) Option {
	return func(c *config) error {
		c.namespace = name
		return codec.ValidateName("namespace", name)
	}
}

// WithDomain sets the JetStream domain of the namespace, for a connection to a leaf node. Default:
// the domain of the server that the connection is connected to.
func WithDomain(name string) Option {
	return func(c *config) error {
		c.domain = name
		return codec.ValidateName("domain", name)
	}
}

// WithQueues sets the queues whose slots this replica runs. Default: those of the jobs that have a
// handler.
func WithQueues(queues ...string) Option {
	queues = slices.Clone(queues)
	return func(c *config) error {
		c.queues = queues
		return codec.ValidateName("queue", queues...)
	}
}

// WithConcurrency sets how many handlers of each queue this replica runs at once, at least 1. See
// WithQueueConcurrency for a queue that needs another number. Default: 16.
func WithConcurrency(n int) Option {
	return func(c *config) error {
		c.concurrency = n
		if n < 1 {
			return fmt.Errorf("%w concurrency %d: must be at least 1", job.ErrInvalid, n)
		}
		return nil
	}
}

// WithQueueConcurrency sets how many handlers of one queue this replica runs at once, at least 1.
// Use it once for each queue that differs from WithConcurrency: for example 2 for reports that
// need much memory. It does not make the replica work on the queue. To bound a job over all
// replicas, set its Concurrency. Default: that of WithConcurrency.
func WithQueueConcurrency(queue string, n int) Option {
	return func(c *config) error {
		if err := codec.ValidateName("queue", queue); err != nil {
			return err
		}
		if n < 1 {
			return fmt.Errorf("%w concurrency %d of queue %s: must be at least 1", job.ErrInvalid, n, queue)
		}
		if c.queueConcurrency == nil {
			c.queueConcurrency = map[string]int{}
		}
		c.queueConcurrency[queue] = n
		return nil
	}
}

// WithGrace sets how long running handlers may continue after the context of Run has ended. Then
// their contexts end. Zero ends them at once. Default: 25 s.
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

// WithEndOnStuck makes Run return an error that wraps job.ErrStuck if a handler does not return
// within the grace period (at least 5 s) after its context has ended. Before Run returns, the
// other handlers get their grace period. A handler cannot be killed, so end the process after
// that: another replica takes over the slot. Default: Run continues, and reports the handler in
// logs, events and the observer.
func WithEndOnStuck() Option {
	return func(c *config) error { c.endOnStuck = true; return nil }
}

// WithPriority sets the priority of this replica for slots, from 0 (the highest, and the default)
// to 9. Replicas with a higher number get slots only while no replica with a lower one is alive and
// has capacity. A priority other than 0 needs nats-server 2.12 or newer.
func WithPriority(n int) Option {
	return func(c *config) error {
		c.priority = n
		if n < 0 || n > exchange.MaxPriority {
			return fmt.Errorf("%w priority %d: must be 0 (first) to %d", job.ErrInvalid, n, exchange.MaxPriority)
		}
		return nil
	}
}

// WithNodeName replaces the host name in the name of the node. Replicas may share it, since the
// name of a node also has its start time and a random part.
func WithNodeName(name string) Option {
	return func(c *config) error {
		c.host = name
		return codec.ValidateName("node", name)
	}
}

// WithoutProducing makes a replica that runs slots and does not publish any. Another replica has to
// publish them. It cannot be used together with WithoutWorking.
func WithoutProducing() Option {
	return func(c *config) error { c.produce = false; return nil }
}

// WithoutWorking makes a replica that only publishes due slots. Its handlers never run.
func WithoutWorking() Option {
	return func(c *config) error { c.work = false; return nil }
}

// WithSettings sets values of the whole namespace. The first replica stores them; New fails with
// job.ErrMismatch if the stored ones differ. A zero field uses the stored value. Default: all
// stored values.
func WithSettings(s job.Settings) Option {
	return func(c *config) error { c.settings = s; return s.Validate() }
}

// WithLogger sets the logger. Default: no logs.
func WithLogger(l *slog.Logger) Option {
	return func(c *config) error { c.logger = l; return nil }
}

// WithObserver sets the observer, which must not be shared by Schedulers. Default: none.
func WithObserver(o Observer) Option {
	return func(c *config) error { c.observer = o; return nil }
}

// WithTracerProvider traces slots. Each slot is one trace, with spans for its publications and for
// the claim, the run and the completion of each attempt. The context of the handler continues it.
// Default: no traces.
func WithTracerProvider(p trace.TracerProvider) Option {
	return func(c *config) error { c.tracers = p; return nil }
}

// WithMiddleware wraps the handlers of all jobs of this Scheduler, for what all of them need: logs, a
// transaction, a limit. The first middleware is the outermost: it is called first, and sees what the
// others return. If the option is used twice, the second use adds inner ones. Each middleware is
// called once for each job, by Handle, and the handler that it returns for each attempt.
//
// A middleware may pass another context to the handler that it wraps. It must derive that context
// from the one that it gets, so that both end when the lease is lost. It sees the error of a
// payload that HandleFunc cannot decode. A panic passes through it, and is recovered outside the
// outermost one. Default: none.
func WithMiddleware(middleware ...func(job.Handler) job.Handler) Option {
	return func(c *config) error {
		for i, m := range middleware {
			if m == nil {
				return fmt.Errorf("%w middleware: number %d is nil", job.ErrInvalid, i)
			}
		}
		c.middleware = append(c.middleware, middleware...)
		return nil
	}
}

// WithErrorHook calls hook once for each failed attempt of this Scheduler's handlers, after its
// result is recorded: for a service that collects errors. An attempt whose result was refused,
// because another replica has taken the slot over, is not reported.
//
// The calls are made one after the other, in a goroutine of their own, so a hook cannot block or
// fail a slot. Up to 1,000 failures are queued for a slow hook. Further ones are dropped, and
// their number is logged. A panic of the hook is recovered and logged. When Run ends, it waits up
// to 5 s for the hook to empty the queue. A process that crashes loses the queue; the ledger has
// every attempt. Default: none.
func WithErrorHook(hook func(job.Failure)) Option {
	return func(c *config) error {
		c.errorHook = hook
		if hook == nil {
			return fmt.Errorf("%w error hook: it is nil", job.ErrInvalid)
		}
		return nil
	}
}

package croncetest

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/cronce-io/cronce"
)

// T is what the fleet needs of a test: *testing.T and *testing.B have it.
type T interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// Option changes a fleet. A bad one fails the test.
type Option func(*config) error

type config struct {
	start    time.Time
	lease    time.Duration
	patience time.Duration
	logger   *slog.Logger
	options  []cronce.Option
}

// At sets the clock at the beginning: an RFC 3339 time. By default it is 2026-01-01,
// midnight UTC.
func At(text string) Option {
	return func(c *config) (err error) {
		if c.start, err = time.Parse(time.RFC3339, text); err != nil {
			return fmt.Errorf("invalid At %q: want an RFC 3339 time like 2026-03-28T00:00:00Z", text)
		}
		return nil
	}
}

// Lease is how long a replica that has crashed keeps what it claimed, in real time:
// at least 1 s, by default 3 s. With a short one a replica may lose what it runs to
// another on a machine that is too busy to run it: its slot is then started again.
func Lease(d time.Duration) Option {
	return func(c *config) error { c.lease = d; return nil }
}

// Patience is how long, in real time, an operation waits for what should happen
// before it fails the test. By default 2 min, which only a hang takes.
func Patience(d time.Duration) Option {
	return func(c *config) error {
		if d <= 0 {
			return fmt.Errorf("invalid Patience %v: want more than zero", d)
		}
		c.patience = d
		return nil
	}
}

// Logger is where the replicas log. By default nowhere.
func Logger(l *slog.Logger) Option {
	return func(c *config) error { c.logger = l; return nil }
}

// Options gives options to each replica, as a program gives them to cronce.New: WithMiddleware,
// WithErrorHook, WithConcurrency and the like. WithNodeName, WithLogger and WithSettings are set by
// the fleet, and WithNamespace and WithDomain must not be used. By default none.
func Options(options ...cronce.Option) Option {
	return func(c *config) error { c.options = append(c.options, options...); return nil }
}

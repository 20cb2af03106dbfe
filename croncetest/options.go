package croncetest

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

	"github.com/cronce-io/cronce"
)

// T is the part of a test that a fleet uses. *testing.T and *testing.B implement it.
type T interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// Option changes a fleet. An invalid one, or nil, fails the test.
type Option func(*config) error

type config struct {
	start    time.Time
	lease    time.Duration
	patience time.Duration
	logger   *slog.Logger
	options  []cronce.Option
}

// At sets the clock at the beginning, to an RFC 3339 time. Default: midnight UTC on 2026-01-01.
func At(text string) Option {
	return func(c *config) (err error) {
		if c.start, err = time.Parse(time.RFC3339, text); err != nil {
			return fmt.Errorf("invalid At %q: want an RFC 3339 time like 2026-03-28T00:00:00Z", text)
		}
		return nil
	}
}

// Lease sets how long a replica that has crashed keeps what it claimed, in real time, at least 1 s.
// On a machine that is too busy to run a replica for that long, another replica takes over its
// slots and starts them again. Default: 3 s.
func Lease(d time.Duration) Option {
	return func(c *config) error { c.lease = d; return nil }
}

// Patience sets how long, in real time, an operation waits before it fails the test. Default: 2
// min, which only a test that hangs reaches.
func Patience(d time.Duration) Option {
	return func(c *config) error {
		if d <= 0 {
			return fmt.Errorf("invalid Patience %v: want more than zero", d)
		}
		c.patience = d
		return nil
	}
}

// Logger sets the logger of the replicas. Default: no logs.
func Logger(l *slog.Logger) Option {
	return func(c *config) error { c.logger = cmp.Or(l, c.logger); return nil }
}

// Options gives each replica options of cronce.New, such as WithMiddleware, WithErrorHook and
// WithConcurrency. The fleet overrides WithNamespace, WithNodeName, WithLogger and WithSettings. Its
// server has no domain, so Start fails the test if WithDomain is among them. Default: none.
func Options(options ...cronce.Option) Option {
	return func(c *config) error { c.options = append(c.options, options...); return nil }
}

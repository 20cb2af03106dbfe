//go:build !darwin && !dragonfly && !freebsd && !linux && !openbsd && !windows

package guard

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"
)

// Guard cannot run commands on this system.
type Guard struct{}

// New returns a guard that can do nothing.
func New(Config) *Guard { return &Guard{} }

// Renew does nothing.
func (*Guard) Renew(time.Duration) {}

// Start fails.
func (*Guard) Start() error {
	return fmt.Errorf("commands on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}

// Close does nothing.
func (*Guard) Close() {}

// Run fails.
func (g *Guard) Run(context.Context, Command) error { return g.Start() }

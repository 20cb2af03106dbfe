package space

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/job"
)

// SetUpAgain creates the missing parts of a namespace that was open before, for example
// after the broker lost its store or an operator removed a stream. It uses the stored
// settings. If none are stored, it stores the settings of this Space and uses them. It
// returns what it created, and the time at which the registry was created. If it cannot
// create a missing part, the error wraps ErrGone and names the part. It also wraps
// job.ErrDenied if this login may not create that part.
func (s *Space) SetUpAgain(ctx context.Context) (changes []string, registry time.Time, err error) {
	for {
		inv, err := s.inspect(ctx)
		missing := inv.missing()
		if err != nil || len(missing) == 0 {
			return changes, inv.registry, err
		}
		set := s.settings
		if inv.stored {
			set = inv.target(job.Settings{})
		}
		done, err := s.create(ctx, &inv, set)
		changes = append(changes, done...)
		if err != nil && !lostRace(err) {
			return changes, time.Time{}, fmt.Errorf("%w: namespace %q lacks %s: %w", wire.ErrGone, s.Name, strings.Join(missing, ", "), err)
		}
	}
}

// CompareSettings compares the stored settings with those that this Space was opened
// with. It returns the stored values that differ, and ours. If no settings are stored,
// the error wraps ErrGone.
func (s *Space) CompareSettings(ctx context.Context) (stored, ours []string, err error) {
	now, _, err := s.readSettings(ctx)
	if errors.Is(err, job.ErrNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil, fmt.Errorf("%w: %w", wire.ErrGone, err)
	}
	if err != nil {
		return nil, nil, err
	}
	stored, ours, _ = mismatch(now.WithDefaults(), s.settings)
	return stored, ours, nil
}

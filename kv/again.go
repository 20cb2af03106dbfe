package kv

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cronce-io/cronce/job"
	"github.com/nats-io/nats.go/jetstream"
)

// setupPause is between two looks whether another login has set the namespace up.
const setupPause = 2 * time.Second

// SetUpAgain creates what is missing of the namespace that was opened: the store was
// lost, or somebody removed a part of it. Streams are made by the settings that are
// stored, or else by those of this Store, which it then stores. It returns what it did,
// and the time at which the registry was created. ErrGone and job.ErrDenied say that
// this login may not: the error names what is missing.
func (s *Store) SetUpAgain(ctx context.Context) (changes []string, registry time.Time, err error) {
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
			return changes, time.Time{}, fmt.Errorf("%w: namespace %q lacks %s: %w", ErrGone, s.namespace, strings.Join(missing, ", "), err)
		}
	}
}

// CompareSettings compares the settings that are stored now with those that this Store was
// opened with. It names the stored ones that differ, and ours; ErrGone says that none
// are stored.
func (s *Store) CompareSettings(ctx context.Context) (stored, ours []string, err error) {
	now, _, err := s.readSettings(ctx)
	if errors.Is(err, job.ErrNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil, fmt.Errorf("%w: %w", ErrGone, err)
	}
	if err != nil {
		return nil, nil, err
	}
	stored, ours, _ = mismatch(now.WithDefaults(), s.settings)
	return stored, ours, nil
}

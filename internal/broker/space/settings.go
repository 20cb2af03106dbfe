package space

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/broker/layout"
	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/job"
)

// overlay returns base, with the fields that want sets replaced by those of want.
func overlay(base, want job.Settings) job.Settings {
	for _, f := range settingFields(&base, &want) {
		f.adopt()
	}
	return base
}

// mismatch lists the fields that want sets and whose stored values differ.
func mismatch(stored, want job.Settings) (found, wanted, flags []string) {
	for _, f := range settingFields(&stored, &want) {
		if f.want != "" && f.have != f.want {
			found = append(found, f.name+" "+f.have)
			wanted = append(wanted, f.name+" "+f.want)
			flags = append(flags, "--"+f.name+" "+f.want)
		}
	}
	return found, wanted, flags
}

// settingField is one field of the settings, as text.
type settingField struct {
	name       string
	have, want string // want is empty when its field is zero
	adopt      func() // copies want's field if it is set
}

func settingFields(base, want *job.Settings) []settingField {
	return []settingField{
		field("lease", &base.Lease, want.Lease),
		field("horizon", &base.Horizon, want.Horizon),
		field("retention", &base.Retention, want.Retention),
		field("duplicates", &base.Duplicates, want.Duplicates),
		field("replicas", &base.Replicas, want.Replicas),
	}
}

func field[T comparable](name string, base *T, want T) settingField {
	var zero T
	f := settingField{name: name, have: fmt.Sprint(*base), adopt: func() {}}
	if want != zero {
		f.want, f.adopt = fmt.Sprint(want), func() { *base = want }
	}
	return f
}

// readSettings returns the stored settings and their revision. If no settings are stored, the error
// wraps job.ErrNotFound. If the bucket does not exist, it wraps jetstream.ErrStreamNotFound.
func (s *Space) readSettings(ctx context.Context) (job.Settings, uint64, error) {
	e, err := s.Bucket("state").Read(ctx, layout.SettingsKey)
	if err != nil {
		return job.Settings{}, e.Revision, err
	}
	set, err := exchange.DecodeSettings(e.Data)
	if err == nil {
		// Another program may have stored them, and the guarantees depend on the rules
		// between the fields.
		err = set.WithDefaults().Validate()
	}
	if err != nil {
		return job.Settings{}, e.Revision, fmt.Errorf("%s/%s: %w", s.Bucket("state").Name, layout.SettingsKey, err)
	}
	return set, e.Revision, nil
}

// writeSettings stores the settings. They need no nonce, because it does not matter which process
// stored equal settings. If the login may not write them, it returns job.ErrDenied at once.
func (s *Space) writeSettings(ctx context.Context, set job.Settings, revision uint64) error {
	data, err := set.MarshalJSON()
	if err != nil {
		return err
	}
	b := s.Bucket("state")
	b.FailDenied = true
	_, err = b.Write(ctx, layout.SettingsKey, data, revision)
	return err
}

// CompareSettings compares the stored settings with those that this Space was opened
// with. It returns the stored values that differ, and those of this Space. If no settings are
// stored, the error wraps wire.ErrGone.
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

// SetupCommand returns the command line that changes the stored settings.
func (s *Space) SetupCommand(flags ...string) string {
	command := []string{"cronce setup"}
	if s.Namespace != job.DefaultNamespace {
		command = append(command, "--namespace "+s.Namespace)
	}
	return strings.Join(append(command, flags...), " ")
}

package kv

import (
	"context"
	"fmt"
	"strings"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

const settingsKey = "settings"

// overlay puts the fields of want that are set over those of base.
func overlay(base, want job.Settings) job.Settings {
	for _, f := range settingFields(&base, &want) {
		f.adopt()
	}
	return base
}

// mismatch names what want insists on and stored has otherwise.
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

type settingField struct {
	name       string
	have, want string // want is empty when its field is zero
	adopt      func() // copies want's field, if it is set
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

// readSettings returns what is stored, and its revision; ErrNotFound when
// nothing is, also when the bucket is not there.
func (s *Store) readSettings(ctx context.Context) (job.Settings, uint64, error) {
	e, err := s.bucket("state").read(ctx, settingsKey)
	if err != nil {
		return job.Settings{}, e.revision, err
	}
	set, err := core.DecodeSettings(e.data)
	if err == nil {
		// Another program may have stored them: the rules between them are what
		// the promise stands on.
		err = set.WithDefaults().Validate()
	}
	if err != nil {
		return job.Settings{}, e.revision, fmt.Errorf("%s/%s: %w", s.bucket("state").name, settingsKey, err)
	}
	return set, e.revision, nil
}

// writeSettings needs no nonce: equal settings are equal, whoever wrote them. A login
// that may not write them gets job.ErrDenied at once.
func (s *Store) writeSettings(ctx context.Context, set job.Settings, revision uint64) error {
	data, err := set.MarshalJSON()
	if err != nil {
		return err
	}
	b := s.bucket("state")
	b.tellDenied = true
	_, err = b.write(ctx, settingsKey, data, revision)
	return err
}

// setupCommand is the command line that changes what is stored.
func (s *Store) setupCommand(flags ...string) string {
	command := []string{"cronce setup"}
	if s.namespace != DefaultNamespace {
		command = append(command, "--namespace "+s.namespace)
	}
	return strings.Join(append(command, flags...), " ")
}

package job

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
)

// Settings belong to a namespace, not to a node: they are stored on the broker
// by whoever comes first, and every other node adopts them.
type Settings struct {
	// Lease is how long a silent node keeps what it claimed, and the AckWait of
	// every queue. Zero: 20 s. At least 1 s; below 16 s a lease does not outlast
	// a broker failover and suits a single server only. At most MaxLease.
	Lease time.Duration

	// Horizon is how old a slot may be and still run. Zero: 24 h.
	Horizon time.Duration

	// Retention is how long an outcome is remembered. Zero: 7 days. It must
	// exceed Horizon plus an hour (invariant 7): a slot whose record is gone
	// must be too old to run.
	Retention time.Duration

	// Duplicates is the slot stream's duplicate window. Zero: 2 min, which is
	// also the least.
	Duplicates time.Duration

	// Replicas of every stream and bucket: 1 to 5. Zero: 3 on a cluster of
	// three servers or more, else 1.
	Replicas int

	// Extra holds the members that a newer program stored, for which this one has no
	// field. They are kept when the settings are written again.
	Extra map[string]json.RawMessage
}

const (
	minLease       = time.Second
	retentionSlack = time.Hour
)

// WithDefaults fills the zero fields, except Replicas, whose default only a
// server can tell.
func (s Settings) WithDefaults() Settings {
	if s.Lease == 0 {
		s.Lease = DefaultLease
	}
	if s.Horizon == 0 {
		s.Horizon = DefaultHorizon
	}
	if s.Retention == 0 {
		s.Retention = max(DefaultRetention, s.Horizon+24*time.Hour)
	}
	if s.Duplicates == 0 {
		s.Duplicates = DefaultDuplicates
	}
	return s
}

// Validate checks each field and the rules between them; zero fields are not
// looked at, so that flags can be checked before the stored values are known.
// Its errors wrap ErrInvalid.
func (s Settings) Validate() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w settings: %s", ErrInvalid, fmt.Sprintf(format, args...))
	}
	switch {
	case s.Lease != 0 && s.Lease < minLease:
		return bad("lease %v: at least %v", s.Lease, minLease)
	case s.Lease > MaxLease:
		return bad("lease %v: at most %v", s.Lease, MaxLease)
	case max(s.Horizon, s.Retention, s.Duplicates) > codec.MaxSpan:
		return bad("horizon %v, retention %v, duplicates %v: at most %v", s.Horizon, s.Retention, s.Duplicates, codec.MaxSpan)
	case s.Horizon < 0 || s.Horizon != 0 && s.Horizon < time.Minute:
		return bad("horizon %v: at least 1m", s.Horizon)
	case s.Duplicates != 0 && s.Duplicates < DefaultDuplicates:
		return bad("duplicates %v: at least %v", s.Duplicates, DefaultDuplicates)
	case s.Retention < 0, s.Retention != 0 && s.Horizon != 0 && s.Retention < s.Horizon+retentionSlack:
		return bad("retention %v must exceed horizon %v by an hour or more: a forgotten slot would run again", s.Retention, s.Horizon)
	case s.Replicas < 0 || s.Replicas > 5:
		return bad("replicas %d: 1 to 5", s.Replicas)
	}
	return nil
}

type settingsWire struct {
	V          int            `json:"v"`
	Lease      codec.Duration `json:"lease"`
	Horizon    codec.Duration `json:"horizon"`
	Retention  codec.Duration `json:"retention"`
	Duplicates codec.Duration `json:"duplicates"`
	Replicas   int            `json:"replicas"`
}

// MarshalJSON writes the value of the key "settings".
func (s Settings) MarshalJSON() ([]byte, error) {
	return codec.Encode(settingsWire{
		codec.Version, codec.Duration(s.Lease), codec.Duration(s.Horizon), codec.Duration(s.Retention), codec.Duration(s.Duplicates), s.Replicas,
	}, s.Extra)
}

// UnmarshalJSON reads what MarshalJSON writes, and validates it. It refuses a value of
// another format version with ErrVersion.
func (s *Settings) UnmarshalJSON(data []byte) error {
	var w settingsWire
	extra, err := codec.Decode("settings", data, &w)
	if err != nil {
		return err
	}
	*s = Settings{
		time.Duration(w.Lease), time.Duration(w.Horizon), time.Duration(w.Retention), time.Duration(w.Duplicates), w.Replicas, extra,
	}
	return s.Validate()
}

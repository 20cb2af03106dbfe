package job

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
)

// Settings belong to a namespace: the first node stores them on the broker, and all others
// use the stored ones. The command "cronce setup" changes them.
type Settings struct {
	// Lease is how long a node without contact with the broker keeps the slots it claimed.
	// After that, other nodes may take them over. It is at least 1 s and at most MaxLease.
	// A lease below 16 s does not outlast the failover of a cluster, and suits a single
	// server only. Zero: DefaultLease.
	Lease time.Duration

	// Horizon is how old a slot may be and still run, at least 1 min. Zero: DefaultHorizon.
	Horizon time.Duration

	// Retention is how long records are kept. It is at least Horizon plus 1 h, so that a slot
	// whose record was removed is too old to run. Zero: DefaultRetention, or Horizon plus
	// 24 h if that is more.
	Retention time.Duration

	// Duplicates is the duplicate window of the slot stream, at least DefaultDuplicates.
	// Zero: DefaultDuplicates.
	Duplicates time.Duration

	// Replicas is the number of copies of each stream and bucket, 1 to 5. Zero: 3 on a
	// cluster of three or more servers, else 1.
	Replicas int

	// Extra holds the members that a newer program stored, for which this one has no
	// field. They are kept when the settings are written again.
	Extra map[string]json.RawMessage
}

const (
	minLease       = time.Second
	retentionSlack = time.Hour
)

// WithDefaults returns a copy with the zero fields filled, except Replicas, whose default
// depends on the server.
func (s Settings) WithDefaults() Settings {
	s.Lease = cmp.Or(s.Lease, DefaultLease)
	s.Horizon = cmp.Or(s.Horizon, DefaultHorizon)
	s.Retention = cmp.Or(s.Retention, max(DefaultRetention, s.Horizon+24*time.Hour))
	s.Duplicates = cmp.Or(s.Duplicates, DefaultDuplicates)
	return s
}

// Validate checks the fields that are not zero, and the rules between them. So flags can be
// checked before the stored values are known. Its errors wrap ErrInvalid.
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

// MarshalJSON writes the settings as they are stored.
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

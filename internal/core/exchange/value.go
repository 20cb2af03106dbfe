// Package exchange holds the values that nodes exchange besides definitions, messages and
// locks: records and events cut to the server's limit, alerts, node records, announcements,
// the watermark, the end of a sweep, and requests that ask a node what it holds. Their
// bytes are described in docs/protocol.md. It is pure, like package core.
package exchange

import (
	"encoding/json"
	"errors"

	"github.com/cronce-io/cronce/job"
)

// DecodeRecord reads a value of the ledger.
func DecodeRecord(data []byte) (job.Record, error) { return decode[job.Record](data) }

// DecodeEvent reads the body of an event.
func DecodeEvent(data []byte) (job.Event, error) { return decode[job.Event](data) }

// DecodeSettings reads the value of the key "settings".
func DecodeSettings(data []byte) (job.Settings, error) { return decode[job.Settings](data) }

// decode calls UnmarshalJSON itself: json.Unmarshal would read the data twice.
func decode[T any, P interface {
	*T
	json.Unmarshaler
}](data []byte) (T, error) {
	var value, none T
	if err := P(&value).UnmarshalJSON(data); err != nil {
		return none, err
	}
	return value, nil
}

// IsUnreadable reports whether err concerns one stored value, which this program cannot
// read, and not the broker. The caller can skip the value and go on.
func IsUnreadable(err error) bool {
	return errors.Is(err, job.ErrVersion) || errors.Is(err, job.ErrInvalid)
}

package core

import (
	"encoding/json"

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

package exchange

import (
	"time"

	"github.com/cronce-io/cronce/internal/codec"
)

// Watermark records how far slots are published. Every slot that was due up to Time is published,
// by producers that knew the registry up to Revision. Time and Revision never go back (invariant 2).
type Watermark struct {
	Time     time.Time `json:"time"`
	Revision uint64    `json:"registry_revision"`

	// RegistryTime is the newest timestamp in the registry up to Revision. The producer knew
	// every plan that was in force by then, even if a later edit has given the plan's entry a
	// newer revision. Without RegistryTime, an edit of a job's payload would publish all
	// past slots of the job again. Zero: not known.
	RegistryTime time.Time `json:"registry_time,omitzero"`

	Node  string      `json:"node"`
	Nonce string      `json:"nonce"`
	Extra codec.Extra `json:"-"`
}

type watermarkMembers Watermark // without methods

type watermarkWire struct {
	V int `json:"v"`
	watermarkMembers
}

// MarshalJSON writes the value of the key "watermark".
func (w Watermark) MarshalJSON() ([]byte, error) {
	w.Time, w.RegistryTime = w.Time.UTC(), w.RegistryTime.UTC()
	return codec.Encode(watermarkWire{codec.Version, watermarkMembers(w)}, w.Extra)
}

// DecodeWatermark reads the value of the key "watermark".
func DecodeWatermark(data []byte) (Watermark, error) {
	var w watermarkWire
	extra, err := codec.DecodeBounded("watermark", data, &w, func(b *codec.Bounds) {
		b.Times("time", &w.Time)
		b.Times("registry_time", &w.RegistryTime)
		b.Words("node", w.Node)
		b.Words("nonce", w.Nonce)
	})
	if err != nil {
		return Watermark{}, err
	}
	w.Extra = extra
	return Watermark(w.watermarkMembers), nil
}

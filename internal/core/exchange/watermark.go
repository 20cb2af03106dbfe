package exchange

import (
	"time"

	"github.com/cronce-io/cronce/internal/codec"
)

// Watermark records how far slots are published. Every slot that was due up to Time is published,
// by producers that knew the registry up to Revision. Time and Revision never go back (invariant 2).
type Watermark struct {
	Time     time.Time
	Revision uint64

	// RegistryTime is the newest timestamp in the registry up to Revision. The producer knew
	// every plan that was in force by then, even if a later edit has given the plan's entry a
	// newer revision. Without RegistryTime, an edit of a job's payload would publish all
	// past slots of the job again. Zero: not known.
	RegistryTime time.Time

	Node  string
	Nonce string
	Extra codec.Extra
}

type watermarkWire struct {
	V            int       `json:"v"`
	Time         time.Time `json:"time"`
	Revision     uint64    `json:"registry_revision"`
	RegistryTime time.Time `json:"registry_time,omitzero"`
	Node         string    `json:"node"`
	Nonce        string    `json:"nonce"`
}

// MarshalJSON writes the value of the key "watermark".
func (w Watermark) MarshalJSON() ([]byte, error) {
	return codec.Encode(watermarkWire{codec.Version, w.Time.UTC(), w.Revision, w.RegistryTime.UTC(), w.Node, w.Nonce}, w.Extra)
}

// DecodeWatermark reads the value of the key "watermark".
func DecodeWatermark(data []byte) (Watermark, error) {
	var w watermarkWire
	extra, err := codec.Decode("watermark", data, &w)
	if err == nil {
		err = w.bound()
	}
	if err != nil {
		return Watermark{}, err
	}
	return Watermark{w.Time, w.Revision, w.RegistryTime, w.Node, w.Nonce, extra}, nil
}

func (w *watermarkWire) bound() error {
	b := codec.Bounds{What: "watermark"}
	b.Times("time", &w.Time)
	b.Times("registry_time", &w.RegistryTime)
	b.Words("node", w.Node)
	b.Words("nonce", w.Nonce)
	return b.Err
}
